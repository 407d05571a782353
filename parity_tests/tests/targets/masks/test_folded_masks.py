"""Shapes that are documented of a mask of floats are judged, though another one alone fits."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("folded_masks.py", cases=60, dtypes=("float64",))


def test_a_right_one_passes_in_both_shapes() -> None:
    """The mask of all samples and that of each are passed."""
    verdict = judged("Folded")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    (note,) = (each for each in verdict.notes if each.startswith("`mask`"))
    assert "(N, L, S)" in note
    assert "(L, S)" in note


def test_a_mask_of_each_sample_in_another_order_fails() -> None:
    """By trial (L, S) alone fits. Kills the documented shapes of booleans alone."""
    verdict = judged("FoldedByHeads", diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert "repeated in the wrong order" in verdict.diagnosis[0].title
