"""Products that are reshaped to heads are wrong of whole weights, and right of those of heads."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import SUBJECTS, assert_named, checks_of

judged = checks_of("reshaped_heads.py", cases=40)


def test_a_reshape_of_whole_weights_is_named() -> None:
    """Kills a pass by a list of matrices, of which the same code is right."""
    assert_named(f"{SUBJECTS}/reshaped_heads.py:whole_weights", ["split-no-transpose"], cases=40)


def test_weights_of_each_head_pass() -> None:
    """Kills whole weights that are preferred where they explain nothing."""
    verdict = judged("of_each_head")
    assert Outcome.PASS == verdict.outcome, verdict
