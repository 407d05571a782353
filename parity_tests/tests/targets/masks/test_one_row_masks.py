"""A mask that is documented to broadcast is passed with one row where all its rows are alike."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("one_row_masks.py", cases=60, dtypes=("float64",))


def test_a_right_one_passes() -> None:
    """Both forms of padding get the answer of torch."""
    verdict = judged("by_rows")
    assert "sdpa" == verdict.convention
    assert Outcome.PASS is verdict.outcome, verdict.sentence


def test_one_row_for_all_queries_is_passed() -> None:
    """Behind the first 16 queries its one row is cut away. Kills masks that are always whole."""
    verdict = judged("by_rows_of_mask", max_failures=0)
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert all(each.case.padding != "none" for each in verdict.failures)
