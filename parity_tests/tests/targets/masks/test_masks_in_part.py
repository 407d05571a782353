"""Causal switches that raise at some lengths, and three axes that are read as samples."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import TOO_COARSE, Outcome
from subject_checks import checks_of

FILE = "masks_in_part.py"
ALONE = "taken at L = S alone"


judged = checks_of(FILE, cases=48, dtypes=("float64",))


def test_a_switch_of_equal_lengths_holds_there_and_the_sentence_says_so() -> None:
    """No case of other lengths asks for it, and the sentence says that."""
    verdict = judged("CausalAtEqualLengths")
    assert Outcome.PASS == verdict.outcome, verdict
    assert 0 == verdict.inconclusive
    assert "; passed at L = S alone: is_causal." in verdict.sentence
    assert TOO_COARSE not in verdict.sentence
    assert any(ALONE in note for note in verdict.notes)


@pytest.mark.parametrize("name", ["MaskOfEqualLengths", "TokensOfEqualLengths"])
def test_a_mask_of_equal_lengths_holds_there_and_the_sentence_says_so(name: str) -> None:
    """Masks for self-attention alone are asked there, and cases of other lengths have none."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict
    assert 0 == verdict.inconclusive
    assert "; passed at L = S alone: mask." in verdict.sentence
    assert any("at L = S alone" in note for note in verdict.notes)


@pytest.mark.parametrize("name", ["MaskOfEqualLengthsTransposed", "MaskOfSomeLengths"])
def test_a_wrong_mask_of_some_lengths_fails(name: str) -> None:
    """One by its other axis is seen at L = S, one that answers some unequal lengths is judged."""
    assert Outcome.FAIL == judged(name, fail_fast=True).outcome


@pytest.mark.parametrize("name", ["CausalAtTheEnd", "CausalAtTheEndOfFewer"])
def test_a_switch_that_answers_some_unequal_lengths_is_judged_there(name: str) -> None:
    """One raised call at unequal lengths hides no rule that is wrong at others."""
    verdict = judged(name)
    assert Outcome.FAIL == verdict.outcome, verdict
    wrong = [each for each in verdict.failures if each.check_result.check == "output"]
    assert {"causal"} == {each.case.attn for each in wrong}
    assert all(each.case.queries != each.case.keys for each in wrong)
    assert not any(ALONE in note for note in verdict.notes)


def test_three_axes_that_are_samples_are_not_torchs() -> None:
    """A mask (N, L, S) read sample by sample holds, and the note says that it is no (N*H, L, S)."""
    verdict = judged("BySamples")
    assert Outcome.PASS == verdict.outcome, verdict
    assert any("its three axes are (N, L, S), not (N*H, L, S)" in n for n in verdict.notes)


@pytest.mark.parametrize("name", ["BySamplesOfOthers", "BySamplesHeadsFirst"])
def test_wrong_three_axes_fail(name: str) -> None:
    """The mask of another sample, and torch's read in another order beside one of samples."""
    verdict = judged(name)
    assert Outcome.FAIL == verdict.outcome, verdict
    assert not any("its three axes are" in note for note in verdict.notes)


def test_a_switch_and_a_mask_that_raise_together_are_passed_one_by_one() -> None:
    """A mask that says all is passed instead, and the note says why."""
    verdict = judged("SwitchOrMask", cases=160)
    assert Outcome.PASS == verdict.outcome, verdict
    assert any("`is_causal` and `mask` are not passed together" in n for n in verdict.notes)


def test_a_mask_beside_torchs_own_is_searched_for() -> None:
    """What it means is found and said, and cases pass all three."""
    verdict = judged("padded")
    assert Outcome.PASS == verdict.outcome, verdict
    assert any("`padding_mask`: True hides" in note for note in verdict.notes)


@pytest.mark.parametrize("name", ["SwitchOverMask", "padded_after_softmax", "padded_hiding"])
def test_wrong_masks_beside_others_fail(name: str) -> None:
    """One that is dropped, one behind the softmax, and torch's own of the other polarity."""
    assert Outcome.FAIL == judged(name, fail_fast=True).outcome


def test_a_shape_that_short_calls_alone_take_is_said_and_not_asked() -> None:
    """One row for all queries has no second part of 64 queries; whole masks are judged at all L."""
    verdict = judged("in_parts")
    assert Outcome.PASS == verdict.outcome, verdict
    (note,) = (each for each in verdict.notes if each.startswith("`bias`"))
    taken, _, short = note.partition("; ")
    assert "(L, S)" in taken
    assert short.startswith("short calls alone take (N, 1, 1, S), which is not asked"), note


def test_a_shape_that_is_said_to_be_typical_is_asked_at_all_lengths() -> None:
    """It was said that short calls alone take it, and the verdict was green."""
    verdict = judged("in_parts_of_both", cases=120)
    assert Outcome.FAIL is verdict.outcome
    assert {"call completes"} == {each.check_result.check for each in verdict.failures}
    assert all(each.case.queries > 64 for each in verdict.failures)


def test_where_every_shape_raises_in_long_calls_the_cases_show_it() -> None:
    """Nothing is taken back, since no call of that length would be left."""
    assert Outcome.FAIL == judged("in_parts_of_few", fail_fast=True).outcome


def test_what_raises_without_a_mask_too_is_no_limit_of_the_mask() -> None:
    """Arrays with several samples are asked, and the lengths at which all calls raise are said."""
    verdict = judged("in_a_stack", diagnose=True)
    assert Outcome.FAIL == verdict.outcome
    assert "wherever L > 16 and L % 16 != 0" in verdict.diagnosis[0].title
