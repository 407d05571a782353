"""A layer that keeps rows until a method is called is judged with a call of that before each."""

from __future__ import annotations

import pytest

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
