"""What constructors of others ask for, refuse, and hold within: each right, and each wrong."""

from __future__ import annotations

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.features import SQUARE
from mha_parity.core.verdict import Outcome
from mha_parity.targets.bind import bind
from subject_checks import checks_of, load_subject

FILE = "constructors.py"
checked = checks_of(FILE, cases=60)


def test_sizes_that_a_constructor_refuses_are_not_asked() -> None:
    """A part of the cases is left out, with its words; the others are judged."""
    verdict = checked("OfEvenWidths", cases=200)
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert 20 < verdict.inconclusive < 120
    said = "its constructor refuses such sizes (raised ValueError: embed_dim should be even, and"
    assert said in verdict.sentence


def test_a_constructor_that_refuses_every_case_is_one_sentence() -> None:
    """Nothing can be judged: its words are said, and no traceback. Kills the empty list."""
    said = "could not be called as fitted: its constructor refuses such sizes"
    with pytest.raises(TargetError, match=said):
        checked("OfOneSize", cases=20, seed=5)


@pytest.mark.parametrize("name", ["BreaksAtOddWidths", "OfEvenWidthsUnscaled"])
def test_a_mistake_is_no_refusal(name: str) -> None:
    """An IndexError is no word of a constructor's, and what is built is judged."""
    assert Outcome.FAIL is checked(name).outcome


def test_a_configuration_within_another_of_any_name_is_made() -> None:
    """Its sizes are said in the note on the configuration."""
    verdict = checked("Nested")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert any("`hidden_dim` = embed_dim; `num_heads` = num" in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("OfMethods", "`init_std` = one"),
        ("DrawnByConfiguration", "`bias_init` = "),
        ("Positions", "as Linears; (N, L, E); `rope` the identity."),
        ("PositionsOfBoth", "`rope` the identity."),
        ("ByMethod", "as Linears"),
        ("OfReducedRows", "as Linears"),
        ("OnDevice", "as Linears"),
        ("OfKernels", "built with `kernel` = 'normal'"),
    ],
)
def test_a_constructor_gets_what_its_code_asks_for(name: str, said: str) -> None:
    """Methods of a configuration, the identity for positions, this device, a string compared."""
    verdict = checked(name)
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert any(said in note for note in verdict.notes), verdict.notes


def test_a_switch_is_set_where_a_layer_is_not_built_without() -> None:
    """Kills a refusal, and keys that such a switch leaves unread taken for a bug."""
    right = checked("OfSelfAttention")
    assert Outcome.PASS is right.outcome, right.sentence
    assert any("built with `self_attention` = True" in note for note in right.notes), right.notes
    assert any("S unlike L is not served" in note for note in right.notes), right.notes
    for name in ("OfSelfAttentionUnscaled", "OfSelfContainment", "QueriesAlone"):
        assert Outcome.FAIL is checked(name, fail_fast=True).outcome


def test_a_function_that_is_not_of_positions_gets_no_identity() -> None:
    """It may be the softmax: a layer without it is another one, and the target is not at fault."""
    with pytest.raises(TargetError, match="no way to call it computes attention"):
        bind(load_subject(f"{FILE}:Normalised"))


@pytest.mark.parametrize("name", ["OfMethodsUnscaled", "PositionsOfValues", "ScaledByWord"])
def test_what_is_wrong_beside_them_is_judged(name: str) -> None:
    """Neither a method nor the identity hides a bug, nor a word where none is needed."""
    assert Outcome.FAIL is checked(name, fail_fast=True).outcome


def test_a_number_of_no_known_meaning_is_refused_by_its_name() -> None:
    """It is no configuration, and the first error says which name is unknown."""
    with pytest.raises(TargetError, match="asks its configuration for 'vit', which is unknown"):
        bind(load_subject(f"{FILE}:OfNumbers"))


def test_a_required_tile_is_shorter_than_the_sequence() -> None:
    """So that there are several tiles and a rest: a bucket that covers all would hide its border.

    Kills a size of parts that is set to the length.
    """
    assert Outcome.PASS is checked("Tiled").outcome
    assert Outcome.FAIL is checked("Bucketed").outcome


def test_a_required_window_is_tried_with_shorter_ones() -> None:
    """In the cases it is as long as the sequence and hides nothing, which is no trial of it."""
    verdict = checked("Windowed")
    assert "not tried" not in verdict.sentence
    said = "`window_size`: of w, row i sees the keys i - w + 1 to i + w - 1"
    assert said in [note.removesuffix(f", {SQUARE}") for note in verdict.notes]


def test_a_number_of_layers_is_one() -> None:
    """It was 0, as the place of a layer is: what divides by it was refused."""
    assert Outcome.PASS is checked("DrawnByDepth").outcome


def test_inputs_in_a_tuple_are_judged() -> None:
    """Three inputs of a layer in one argument, found by trial; exchanged ones are wrong."""
    verdict = checked("InATuple")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert any("`inputs` a tuple of query, key and value" in note for note in verdict.notes)
    assert Outcome.FAIL is checked("InATupleExchanged").outcome


@pytest.mark.parametrize(
    "name",
    [
        "OfOptionalWidths", "OfDtype", "KeysAndValuesAsOne", "LikeTorchs", "OfHiddenAndHeads",
        "DrawnByArgument",
    ],
)  # fmt: skip
def test_what_no_call_or_constructor_does_without_is_given(name: str) -> None:
    """Widths that default to None, a dtype, lengths of samples, a mask of torch's name."""
    verdict = checked(name)
    assert Outcome.PASS is verdict.outcome, verdict.sentence


def test_a_required_mask_of_torchs_name_has_torchs_meaning() -> None:
    """It fails, in calls that were all made, and is said to keep what it should hide."""
    verdict = checked("LikeTorchsInverted", diagnose=True)
    assert Outcome.FAIL is verdict.outcome
    (found,) = verdict.diagnosis
    assert "True or 1 of `key_padding_mask` keeps a key that it should hide" in found.title
    assert not any("could not be called" in note for note in verdict.notes)
