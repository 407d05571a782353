"""Layers with some of torch's biases are judged with these, and the others are zeros."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import check_subject

VALUES = {"NoneOfKeys": "yes", "NoneOfOutput": "in", "OfOutputAlone": "out"}


@pytest.mark.repeats(1)
@pytest.mark.parametrize("grad", [False, True], ids=["forward", "gradients"])
@pytest.mark.parametrize("name", VALUES)
def test_right_ones_pass(name: str, *, grad: bool) -> None:
    """The gradient of a key's bias is 0: one that is not there is right."""
    features = (("bias", VALUES[name]),)
    verdict = check_subject(f"partial_biases.py:{name}", cases=60, features=features, grad=grad)
    assert Outcome.PASS == verdict.outcome, verdict


@pytest.mark.parametrize("name", ["NoneOfOutputForgotten", "OfOutputAloneTwice"])
def test_wrong_ones_fail_where_there_are_biases(name: str) -> None:
    """Without biases both are right; the reason says of whose there is none."""
    verdict = check_subject(f"partial_biases.py:{name}", cases=30)
    assert Outcome.FAIL == verdict.outcome
    rows = {row.value: row for row in verdict.features if row.axis == "bias"}
    assert 0 == rows["no"].failed
    assert "has no bias" in rows["yes"].reason
