"""Answers that are NaN throughout name no bug: many a formula has them."""

from __future__ import annotations

from subject_checks import check_subject


def test_no_pair_of_bugs_is_named_for_nan() -> None:
    """Kills two bugs that together hide every key, of which the answers are NaN as well."""
    verdict = check_subject("hides_all.py:HidesAll", cases=60, diagnose=True)
    first = verdict.diagnosis[0]
    assert (None, "the weights are no softmax: rows of weights are NaN") == (first.bug, first.title)
