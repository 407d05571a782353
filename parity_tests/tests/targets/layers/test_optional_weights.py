"""Weights and biases of functions that default to None are given, and left at None, by the case."""

from __future__ import annotations

import pytest

from mha_parity.core.parameters import Status
from mha_parity.core.verdict import Outcome
from subject_checks import check_subject


@pytest.mark.parametrize(("name", "axis"), [("biases", "bias"), ("output", "out_proj")])
def test_right_ones_pass_with_and_without(name: str, axis: str) -> None:
    """All parameters are tried, in cases that have what they are for and in others."""
    verdict = check_subject(f"optional_weights.py:{name}", cases=30)
    assert Outcome.PASS == verdict.outcome, verdict
    assert {Status.TRIED} == {each.status for each in verdict.parameters}, verdict.parameters
    assert 2 == len([r for r in verdict.features if r.axis == axis and r.status == "pass"])


@pytest.mark.parametrize(
    ("name", "axis"), [("bias_of_keys", "bias"), ("output_turned", "out_proj")]
)
def test_wrong_ones_fail_by_them_alone(name: str, axis: str) -> None:
    """Without the optional weights all is right."""
    verdict = check_subject(f"optional_weights.py:{name}", cases=30)
    assert Outcome.FAIL == verdict.outcome
    failed = {row.value: row.failed for row in verdict.features if row.axis == axis}
    plain, other = failed.pop({"bias": "no", "out_proj": "identity"}[axis]), max(failed.values())
    assert 0 == plain
    assert 0 < other


def test_what_raises_is_left_at_its_default() -> None:
    """A parameter that is called a weight and is none is said to be untried."""
    verdict = check_subject("optional_weights.py:another_meaning", cases=30)
    assert Outcome.PASS == verdict.outcome
    assert "parameters not tried: w_o" in verdict.sentence
