"""Masks that are objects are handed over as such, under the attributes that a call reads."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("mask_objects.py", cases=40, dtypes=("float64",))


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Flagged", "`attn_mask` is read where `mask_flag` is on alone."),
        ("FullAttention", "`attn_mask`: an object that holds it as `bool_matrix`: True keeps"),
        ("FullAttention", "`key_lengths`: an object that holds it as `additive_matrix`: floats"),
    ],
)
def test_right_ones_pass(name: str, said: str) -> None:
    """The masks of the cases are in the object, and what it is like is said.

    Where a switch has the causal rule, the mask that replaces the rule is passed beside it.
    """
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict
    assert any(said in note for note in verdict.notes), verdict.notes
    assert not [each for each in verdict.parameters if each.is_untried]


@pytest.mark.parametrize("name", ["HidesNoFirst", "FlaggedSoftly"])
def test_wrong_ones_fail(name: str) -> None:
    """A mask in an object is judged as an array is."""
    verdict = judged(name, fail_fast=True)
    assert Outcome.FAIL == verdict.outcome, verdict


def test_a_switch_that_has_the_causal_rule_is_on_in_each_causal_case() -> None:
    """The mask that replaces the rule may be left out there; the switch is not."""
    verdict = judged("Flagged", features=(("attn", "causal"),))
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed), verdict
