"""A mask that has the keys before the queries is understood where its documentation says so."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("keys_first.py", cases=60)


def test_keys_before_queries_are_found_where_they_are_no_square() -> None:
    """Kills a reading as (L, S) at L = S alone, by which a right one is red."""
    verdict = judged("by_context")
    assert Outcome.PASS == verdict.outcome, verdict
    (said,) = (note for note in verdict.notes if note.startswith("`blocked`"))
    assert "taken as (S, L)" in said


def test_an_inverted_one_fails() -> None:
    """The order of its axes does not say what True means: the documentation does."""
    assert Outcome.FAIL == judged("by_context_inverted").outcome


@pytest.mark.parametrize("name", ["against_its_word", "undocumented"])
def test_keys_behind_queries_are_demanded_where_nothing_says_otherwise(name: str) -> None:
    """Kills a mask that is applied transposed, and passes since calls alone decide."""
    assert Outcome.FAIL == judged(name).outcome
