"""A function that documents arrays with heads is judged on these, though rows alone fit."""

from __future__ import annotations

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("softmax_axes.py", cases=40, dtypes=("float64",))


@pytest.mark.parametrize("name", ["of_documented_heads", "of_heads_in_words"])
def test_documented_heads_are_judged(name: str) -> None:
    """A softmax over the heads is right of one sequence alone; kills a fit by that.

    Whether a parameter more is required, and whether the axes stand in an entry or a sentence.
    """
    verdict = judged(name, diagnose=True)
    assert Outcome.FAIL is verdict.outcome
    assert ["softmax-head-axis"] == [each.bug for each in verdict.diagnosis]


@pytest.mark.parametrize("name", ["of_one_sequence", "of_samples", "of_a_width_unread"])
def test_documented_rows_alone_are_right(name: str) -> None:
    """What documents two or three axes promises nothing of four, nor one sequence of several.

    A width of heads is no number of them, whatever the function does with it.
    """
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict


def test_heads_that_are_answered_unlike_are_refused_where_nothing_is_documented() -> None:
    """One sequence alone is right: the refusal names both ways out. Kills a pass by rows."""
    with pytest.raises(TargetError, match=r"each of their heads alone.*`--convention qkv`"):
        judged("of_no_documented_axes")


def test_keys_in_the_place_of_values_are_judged() -> None:
    """Kills a refusal of an output that is near no attention, where one mistake explains it."""
    verdict = judged("of_keys_for_values", diagnose=True)
    assert Outcome.FAIL is verdict.outcome
    assert "value is not read: key is taken in its place" in verdict.diagnosis[0].title
