"""Layers with some of torch's biases are judged with these, and the others are zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_parity.core.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

VALUES = {"NoneOfKeys": "yes", "NoneOfOutput": "in", "OfOutputAlone": "out"}


@pytest.mark.parametrize("grad", [False, True], ids=["forward", "gradients"])
@pytest.mark.parametrize("name", VALUES)
def test_right_ones_pass(check_subject: Callable[..., Verdict], name: str, *, grad: bool) -> None:
    """The gradient of a key's bias is 0: one that is not there is right."""
    features = (("bias", VALUES[name]),)
    verdict = check_subject(f"partial_biases.py:{name}", cases=60, features=features, grad=grad)
    assert Outcome.PASS == verdict.outcome, verdict


@pytest.mark.parametrize("name", ["NoneOfOutputForgotten", "OfOutputAloneTwice"])
def test_wrong_ones_fail_where_there_are_biases(
    check_subject: Callable[..., Verdict], name: str
) -> None:
    """Without biases both are right; the reason says of whose there is none."""
    verdict = check_subject(f"partial_biases.py:{name}", cases=30)
    assert Outcome.FAIL == verdict.outcome
    rows = {row.value: row for row in verdict.features if row.axis == "bias"}
    assert 0 == rows["no"].failed
    assert "has no bias" in rows["yes"].note
