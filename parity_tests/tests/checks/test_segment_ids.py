"""Rows of several sequences in one sample see their own segment alone."""

from __future__ import annotations

import pytest

from mha_parity.checks.segment_ids import NAME
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("segments.py", cases=40, dtypes=("float64",))


@pytest.mark.parametrize(
    "name", ["by_segment", "causal_by_segment", "of_both", "Segmented", "Packed"]
)
def test_right_ones_pass(name: str) -> None:
    """The numbers of segments are passed, and the sentence has none of them untried.

    Kills segments that are asked with the causal rule of a default, and rows alone without it.
    """
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert any(NAME == row.name and row.cases for row in verdict.checks)
    assert "not tried" not in verdict.sentence


@pytest.mark.parametrize("name", ["by_order", "SeesNeighbours", "PackedOneLate"])
def test_wrong_ones_fail_by_this_check_alone(name: str) -> None:
    """No case has segments. Kills a comparison of a whole sample with itself."""
    verdict = judged(name, max_failures=0, diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert {NAME} == {each.check_result.check for each in verdict.failures}
    assert "from a sequence of their own" in verdict.diagnosis[0].title
    assert "different numbers" in verdict.diagnosis[0].remedy
