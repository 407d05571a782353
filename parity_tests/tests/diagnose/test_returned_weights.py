"""Returned weights that miss one of two masks are said to; bare weights by head are recognised."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("returned_weights.py", cases=80, dtypes=("float64",))


@pytest.mark.parametrize("name", ["ReturnsWhatItUses", "BareByHead"])
def test_right_ones_pass(name: str) -> None:
    """Both masks are in the weights; a bias (3, H, 1, D) is one of q, k and v."""
    verdict = judged(name)
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed), verdict


def test_weights_without_one_of_two_masks_are_said() -> None:
    """Each mask alone is in them. Kills the pairs of masks, and the stages without one."""
    verdict = judged("ReturnsWithoutPadding", diagnose=True)
    assert Outcome.FAIL == verdict.outcome
    said = verdict.diagnosis[0].title
    assert "boolean key_padding_mask and boolean attn_mask (L, S) are the weights without" in said
    assert "without key_padding_mask; the output is right" in said


def test_weights_that_are_set_to_zero_behind_the_softmax_are_said() -> None:
    """Rows of them do not sum to 1: they are those of all keys."""
    verdict = judged("ReturnsZeroed", diagnose=True)
    assert Outcome.FAIL == verdict.outcome
    said = verdict.diagnosis[0].title
    assert "are the weights without the mask, and 0 where it hides: not divided by" in said


def test_weights_of_earlier_tiles_that_are_not_rescaled_are_said() -> None:
    """Kills "nowhere in plain problems": rows of a tile or less show nothing of it."""
    of_tiles = checks_of("tile_arguments.py", cases=120, dtypes=("float64",))
    assert Outcome.PASS == of_tiles("with_weights").outcome
    verdict = of_tiles("with_stale_weights", diagnose=True)
    assert Outcome.FAIL == verdict.outcome, verdict
    assert "of the returned weights" in verdict.diagnosis[0].title
    assert (
        "keys are combined in tiles of 16; when the running maximum" in verdict.diagnosis[0].title
    )
