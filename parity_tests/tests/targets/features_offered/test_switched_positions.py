"""A layer is judged without positions that a switch turns off, and the verdict says so."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("switched_positions.py", cases=40, dtypes=("float64",))


def test_a_right_one_passes_without_its_positions() -> None:
    """The sentence names the switch. Kills a refusal, and a verdict that does not say it."""
    verdict = judged("Rotates")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert "without its use_rope" in verdict.sentence
    assert any("built with `use_rope` = False" in note for note in verdict.notes), verdict.notes


def test_a_wrong_one_fails_without_its_positions() -> None:
    """What is wrong besides shows."""
    verdict = judged("RotatesAndScalesByRows", diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert "root of the whole width" in verdict.diagnosis[0].title, verdict.diagnosis[0]


def test_a_word_of_a_configuration_that_is_not_asked_is_said() -> None:
    """Its default is judged, and the word that its code compares it with is named."""
    verdict = judged("OfConfiguration")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    said = "its configuration's `positions` is 'none': 'rotary' is not asked"
    assert any(said in note for note in verdict.notes), verdict.notes
