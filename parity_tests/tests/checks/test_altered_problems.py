"""Altered problems are other ones of the shapes they name; no array of theirs is written into."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue.registry import whole_offer
from mha_parity.checks import altered_problems as altered
from mha_parity.core.case import Case
from mha_parity.core.problem import INPUTS, Problem

CASE = Case(seed=3, batch=2, queries=5, keys=7, heads_count=2, head_dim=3, inputs="distinct",
            attn="bool2d", padding="bool")  # fmt: skip


@pytest.fixture
def problem() -> Problem:
    """Return a problem with two masks."""
    return make_problem(CASE)


@pytest.mark.parametrize("width", [1, 3])
def test_other_rows_have_the_sums_or_norms_of_the_rows(width: int) -> None:
    """A result that is kept by shape, sum and norm would be taken for that of the other rows."""
    own = make_problem(CASE.replace(heads_count=1, head_dim=width))
    other = altered.other_rows(own)
    for name in INPUTS:
        before, after = getattr(own, name), getattr(other, name)
        assert not np.array_equal(before, after)
        assert np.linalg.norm(before) == pytest.approx(np.linalg.norm(after))
        assert width == 1 or before.sum() == pytest.approx(after.sum())
    assert other.w_q is own.w_q


def test_rows_that_are_one_array_stay_one() -> None:
    """Self-attention stays self-attention, whatever is altered."""
    own = make_problem(CASE.replace(keys=5, inputs="self"))
    half = altered.first_half(own)
    for each in (altered.other_problem(own), altered.other_rows(own), half):
        assert each is not None
        assert each.query is each.key is each.value


def test_half_a_problem_has_half_the_lengths(problem: Problem) -> None:
    """Rows and masks are cut to the first queries and keys; one query has no half."""
    half = altered.first_half(problem)
    assert half is not None
    assert (2, 3) == (half.query.shape[1], half.value.shape[1])
    assert half.attn_mask is not None
    assert (2, 3) == half.attn_mask.shape
    assert altered.first_half(make_problem(CASE.replace(queries=1))) is None


def test_masks_are_moved_taken_away_or_taken_over(problem: Problem) -> None:
    """Other masks differ; none are left where the offer has none; an earlier problem lends its."""
    moved = altered.masks_shifted_by_one_key(problem)
    bare = altered.all_keys_visible(problem, whole_offer())
    assert moved is not None
    assert bare is not None
    assert not np.array_equal(moved.hidden(), problem.hidden())
    assert not bare.hidden().any()
    assert altered.all_keys_visible(bare, whole_offer()) is None
    assert altered.all_keys_visible(problem, whole_offer() | {"attn": ("causal",)}) is None
    lent = altered.with_masks_of(bare, problem)
    assert lent is not None
    assert np.array_equal(lent.hidden(), problem.hidden())
    assert altered.with_masks_of(problem, altered.other_rows(problem)) is None


def test_masks_of_an_earlier_call_are_joined_to_those_of_a_later_one(problem: Problem) -> None:
    """What either hides is hidden, of a longer call its first rows and keys; not of a shorter."""
    half = altered.first_half(problem)
    bare = altered.all_keys_visible(problem, whole_offer())
    moved = altered.masks_shifted_by_one_key(problem)
    assert half is not None
    assert bare is not None
    assert moved is not None
    for own, earlier in ((problem, moved), (bare, problem), (half, moved)):
        joined = altered.with_masks_joined(own, earlier)
        assert joined is not None
        length, keys = own.case.queries, own.case.keys
        hidden = earlier.hidden()[..., :length, :keys] | own.hidden()
        assert np.array_equal(hidden, joined.hidden())
        kinds = ("bool", "bool2d")
        assert kinds == (joined.case.padding, joined.case.attn)
    assert altered.with_masks_joined(problem, bare) is None


@pytest.mark.parametrize("sizes", [{"batch": 3}, {"queries": 4}, {"keys": 6}], ids=str)
def test_masks_of_other_samples_or_fewer_rows_are_not_joined(sizes: dict[str, int]) -> None:
    """Each of the three alone; and no masks of floats."""
    bare = make_problem(CASE.replace(padding="none", attn="none"))
    for masks in ({"padding": "none"}, {"attn": "none"}):
        whole, other = (make_problem(CASE.replace(**masks, **each)) for each in ({}, sizes))
        assert altered.with_masks_joined(bare, whole) is not None
        assert altered.with_masks_joined(bare, other) is None
    floats = make_problem(CASE.replace(padding="float", attn="none"))
    assert altered.with_masks_joined(bare, floats) is None


def test_other_lengths_hide_the_last_keys_and_no_others() -> None:
    """Each sample keeps at least one key and gets another length, one of all keys too."""
    own = make_problem(CASE.replace(padding="lengths", attn="none", batch=9))
    own = own.replace(key_padding_mask=np.arange(7) >= np.arange(9)[:, None].clip(1, 7))
    other = altered.masks_shifted_by_one_key(own)
    assert other is not None
    assert own.key_padding_mask is not None
    assert other.key_padding_mask is not None
    lengths = [7 - mask.sum(axis=-1) for mask in (own.key_padding_mask, other.key_padding_mask)]
    assert set(lengths[0]) == set(range(1, 8))
    assert (lengths[0] != lengths[1]).all()
    assert lengths[1].min() >= 1
    hidden = np.arange(7) >= lengths[1][:, None]
    assert np.array_equal(other.key_padding_mask, hidden)


def test_keys_are_taken_over_or_put_before(problem: Problem) -> None:
    """Keys of an earlier problem replace those of a later one, or precede them where none hides."""
    bare = altered.all_keys_visible(problem, whole_offer())
    assert bare is not None
    other = altered.other_rows(bare)
    taken = altered.with_keys_of(other, bare)
    joined = altered.after_keys_of(other, bare)
    assert taken is not None
    assert joined is not None
    assert taken.key is bare.key
    assert np.array_equal(joined.key, np.concatenate((bare.key, other.key), axis=1))
    assert altered.after_keys_of(problem, bare) is None
    half = altered.first_half(bare)
    assert half is not None
    assert altered.with_keys_of(bare, half) is None


@pytest.mark.parametrize(("attn", "rows"), [("bool2d", 5), ("bool3d", 2)])
def test_one_sample_is_the_first(attn: str, rows: int) -> None:
    """Its arrays are copies, of masks of heads its own; no keys of several samples precede its own.

    Kills the masks of all samples, a view, and keys of another batch, which cannot be joined.
    """
    problem = make_problem(CASE.replace(attn=attn))
    one = altered.first_sample(problem)
    assert one is not None
    assert 1 == one.case.batch
    for name in ("query", "key", "value", "key_padding_mask"):
        assert np.array_equal(getattr(problem, name)[:1], getattr(one, name))
        assert not np.shares_memory(getattr(problem, name), getattr(one, name))
    assert problem.attn_mask is not None
    assert one.attn_mask is not None
    assert np.array_equal(problem.attn_mask[:rows], one.attn_mask)
    assert altered.first_sample(one) is None
    bare = altered.all_keys_visible(problem, whole_offer())
    assert bare is not None
    single = altered.first_sample(bare)
    assert single is not None
    assert altered.after_keys_of(single, bare) is None
