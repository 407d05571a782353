"""A layer that keeps rows until a method is called is judged with a call of that before each."""

from __future__ import annotations

import pytest

from mha_parity.checks.cached_rows import NAME
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("keeps_until_reset.py", cases=60, dtypes=("float64",))


def test_a_layer_begins_each_call_anew() -> None:
    """Equal calls of one object differed, and a right layer failed; the report says the method."""
    verdict = judged("Decoder")
    assert Outcome.PASS is verdict.outcome, verdict
    said = "`reset_cache()` is called before each call: the layer keeps what earlier ones left"
    assert any(note.startswith(said) for note in verdict.notes), verdict.notes


@pytest.mark.parametrize("name", ["ForgetsLittle", "NeverForgets", "DrawnAnew"])
def test_what_does_not_forget_fails(name: str) -> None:
    """Kills a method that is called by its name alone: equal calls have to be equal by it."""
    verdict = judged(name)
    assert Outcome.FAIL is verdict.outcome, verdict
    assert not any("is called before each call" in note for note in verdict.notes) or (
        name == "ForgetsLittle"
    )


def test_rows_go_on_behind_kept_ones() -> None:
    """Some split of a sequence in calls is right, and the others are wrong by this alone."""
    verdict = judged("CountsCalls", max_failures=0)
    assert Outcome.FAIL is verdict.outcome, verdict
    assert {NAME} == {each.check_result.check for each in verdict.failures}
    assert any(NAME == row.name and row.cases for row in judged("Decoder").checks)


def test_what_is_kept_may_be_no_rows() -> None:
    """No row behind another one is that of the whole, and it is not asked for."""
    verdict = judged("Smooths")
    assert Outcome.PASS is verdict.outcome, verdict
    assert not any(NAME == row.name and row.cases for row in verdict.checks)
