"""Padding in front of a causal sequence hides nothing else."""

from __future__ import annotations

import pytest

from mha_parity.checks.left_padding import NAME, NO_KEY
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("left_padding.py", cases=24, dtypes=("float64",))


@pytest.mark.parametrize("name", ["Filled", "NotANumber", "Zeroed"])
def test_right_ones_pass(name: str) -> None:
    """Rows of padding may be anything: finite ones by a large fill, or NaN."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict
    assert any(NAME == row.name and row.cases for row in verdict.checks)


@pytest.mark.parametrize("name", ["FirstKeyShows", "PaddingSeenBehind"])
def test_wrong_ones_fail_by_the_first_row_behind_the_padding(name: str) -> None:
    """No case hides the first key under the causal rule: kills a run without this check."""
    verdict = judged(name, max_failures=0, diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict
    assert {NAME} == {each.check_result.check for each in verdict.failures}
    title = verdict.diagnosis[0].title
    assert title.startswith("with the first 64 of 70 keys of sample 0 hidden elements differ by")
    assert title.endswith("in row 64, which should see key 64 alone.")
    assert "treat as a row without keys" in verdict.diagnosis[0].remedy


def test_rows_that_padding_and_the_rule_empty_together_are_zero_where_that_is_promised() -> None:
    """No case has such rows: kills a promise that is asked of samples without any key alone."""
    verdict = judged("ZeroedByPaddingAlone", max_failures=0)
    assert Outcome.FAIL is verdict.outcome, verdict
    assert {NAME} == {each.check_result.check for each in verdict.failures}
    assert NO_KEY in verdict.failures[0].check_result.detail
