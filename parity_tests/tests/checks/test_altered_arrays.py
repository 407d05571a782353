"""Altered problems have the arrays that their sentences say, number by number."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue.registry import whole_offer
from mha_parity.checks import altered_problems as altered
from mha_parity.core.case import parse
from mha_parity.core.problem import INPUTS

FULL = "mha-N2-L4-S6-H2-D3-distinct-bias-biaskv-outproj-padding-boolmask-float64-s1"


def test_another_problem_is_reversed_times_a_factor() -> None:
    """Kills `[..., ::+1]` and other factors, and each name that is left out."""
    own = make_problem(parse(FULL))
    other = altered.other_problem(own)
    for name in (*INPUTS, "w_q", "w_k", "w_v", "b_v", "bias_v", "w_out"):
        assert np.array_equal(getattr(own, name)[..., ::-1] * -1.5, getattr(other, name)), name
    for name in ("b_q", "b_k", "b_out", "bias_k", *altered.MASKS):
        assert getattr(own, name) is getattr(other, name), name


def test_scaled_rows_are_the_rows_times_the_factor_in_their_dtype() -> None:
    """Kills other operations with the factor; weights stay."""
    own = make_problem(parse(FULL.replace("float64", "float32")))
    scaled = altered.scaled_rows(own, 3.0)
    for name in INPUTS:
        assert getattr(scaled, name).dtype == np.float32
        assert np.array_equal(getattr(own, name) * np.float32(3), getattr(scaled, name))
    assert scaled.w_q is own.w_q


def test_rows_of_one_column_change_their_sign_and_others_their_order() -> None:
    """Kills `> 0` and `> 2` columns: two can be reversed, one cannot."""
    for width in (1, 2):
        own = make_problem(parse(f"mha-N2-L4-S6-H1-D{width}-distinct-float64-s1"))
        other = altered.other_rows(own)
        for name in INPUTS:
            array = getattr(own, name)
            right = -array if width == 1 else array[..., ::-1]
            assert np.array_equal(right, getattr(other, name))


@pytest.mark.parametrize(("queries", "keys"), [(2, 6), (4, 2), (2, 2), (5, 7)])
def test_half_a_problem_is_its_first_half(queries: int, keys: int) -> None:
    """Rows and masks up to half the queries and keys, down to two; the case says the lengths."""
    words = f"mha-N2-L{queries}-S{keys}-H2-D3-distinct-padding-boolmask-float64-s1"
    own = make_problem(parse(words))
    half = altered.first_half(own)
    assert half is not None
    assert (queries // 2, keys // 2) == (half.case.queries, half.case.keys)
    assert np.array_equal(own.query[:, : queries // 2], half.query)
    for name in ("key", "value"):
        assert np.array_equal(getattr(own, name)[:, : keys // 2], getattr(half, name))
    assert own.attn_mask is not None
    assert own.key_padding_mask is not None
    assert half.attn_mask is not None
    assert half.key_padding_mask is not None
    assert np.array_equal(own.attn_mask[: queries // 2, : keys // 2], half.attn_mask)
    assert np.array_equal(own.key_padding_mask[:, : keys // 2], half.key_padding_mask)


@pytest.mark.parametrize(("queries", "keys"), [(1, 6), (6, 1)])
def test_one_row_has_no_half(queries: int, keys: int) -> None:
    """Of queries as of keys."""
    assert (
        altered.first_half(make_problem(parse(f"qkv-N2-L{queries}-S{keys}-H2-D3-cross-s1"))) is None
    )


def test_masks_are_moved_on_by_one_key() -> None:
    """Both; a length grows by one key, a whole one becomes 1; without masks nothing moves."""
    own = make_problem(parse(FULL))
    moved = altered.masks_shifted_by_one_key(own)
    assert moved is not None
    for name in altered.MASKS:
        assert np.array_equal(np.roll(getattr(own, name), 1, axis=-1), getattr(moved, name))
    lengths = make_problem(parse(FULL.replace("padding-boolmask", "lengths-boolmask")))
    moved = altered.masks_shifted_by_one_key(lengths)
    assert moved is not None
    assert lengths.key_padding_mask is not None
    assert moved.key_padding_mask is not None
    before, after = (
        (~mask).sum(axis=-1).tolist() for mask in (lengths.key_padding_mask, moved.key_padding_mask)
    )
    assert [1 if length == 6 else length + 1 for length in before] == after
    assert (
        altered.masks_shifted_by_one_key(make_problem(parse(FULL.replace("padding-boolmask-", ""))))
        is None
    )


def test_masks_are_taken_away_where_the_offer_has_problems_without() -> None:
    """Each kind of mask alone, the causal rule too; and the case says that none is left."""
    offer = whole_offer()
    for words in ("padding", "boolmask", "causal"):
        own = make_problem(parse(FULL.replace("padding-boolmask", words)))
        bare = altered.all_keys_visible(own, offer)
        assert bare is not None, words
        assert ("none", "none") == (bare.case.padding, bare.case.attn)
        assert bare.key_padding_mask is bare.attn_mask is None
        assert not bare.is_causal
        for axis in ("padding", "attn"):
            assert altered.all_keys_visible(own, offer | {axis: ("causal",)}) is None


def test_masks_and_keys_are_taken_over_between_equal_lengths_alone() -> None:
    """Other queries or other keys are another length, and appended keys leave the case right."""
    own = make_problem(parse(FULL.replace("padding-boolmask-", "")))
    for words in ("L5-S6", "L4-S7"):
        other = make_problem(parse(FULL.replace("L4-S6", words)))
        assert altered.with_masks_of(own, other) is None
    lent = altered.with_masks_of(own, make_problem(parse(FULL)))
    assert lent is not None
    assert ("bool", "bool2d") == (lent.case.padding, lent.case.attn)
    joined = altered.after_keys_of(own, own)
    assert joined is not None
    assert joined.key.shape[1] == joined.value.shape[1] == joined.case.keys == 12
    for words in ("padding", "boolmask", "causal"):
        masked = make_problem(parse(FULL.replace("padding-boolmask", words)))
        assert altered.after_keys_of(masked, own) is None, words
