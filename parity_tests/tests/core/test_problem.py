"""A problem's arrays under torch's names, its masks as one array, and its sums by their shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core import head_projections
from mha_parity.core.arrays import Array, merge_heads, split_heads
from mha_parity.core.case import Case, parse
from mha_parity.core.own_weights import OwnWeights
from mha_parity.core.problem import Problem

LAYER = "mha-N2-L3-S4-H2-D3-cross-bias-biaskv-zeroattn-outproj-padding-boolmask-float64-s1"
NAMES = {"in_proj_weight": ("w_q", "w_k", "w_v"), "in_proj_bias": ("b_q", "b_k", "b_v"),
         "bias_k": ("bias_k",), "bias_v": ("bias_v",), "out_proj.weight": ("w_out",),
         "out_proj.bias": ("b_out",)}  # fmt: skip


def layer(**changes: Any) -> Problem:
    """Return a layer's problem that has every array."""
    return make_problem(parse(LAYER)).replace(**changes)


@pytest.mark.parametrize("name", NAMES)
def test_the_state_has_torchs_names_and_what_is_there(name: str) -> None:
    """Kills each condition negated: an array that is None takes its own name away, and no other."""
    problem = layer()
    state = problem.state()
    assert list(NAMES) == list(state)
    arrays = [getattr(problem, field) for field in NAMES[name]]
    assert np.array_equal(state[name], np.concatenate(arrays).reshape(state[name].shape))
    assert state["bias_k"].shape == state["bias_v"].shape == (1, 1, 6)
    for field in NAMES[name]:
        gone = {*NAMES} if name == "in_proj_weight" else {name}
        gone |= {"bias_k", "bias_v"} if name in {"bias_k", "bias_v"} else set()
        assert {*NAMES} - gone == {*layer(**{field: None}).state()}, field


def test_separate_projections_have_names_of_their_own() -> None:
    """Also where no width differs."""
    problem = make_problem(parse(LAYER).replace(projection="separate", kdim=5, vdim=7))
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    assert [6, 5, 7] == [problem.state()[name].shape[1] for name in names]


def test_hidden_keys_and_finite_masks_are_summed_over_both_masks() -> None:
    """By the definition, key by key: causal and -inf hide, numbers add, appended keys do not.

    Kills changes of each term and of the axes.
    """
    rng = np.random.Generator(np.random.Philox(1))
    attn = np.where(rng.random((4, 3, 4)) < 0.3, -np.inf, rng.standard_normal((4, 3, 4)))
    padding = np.where(rng.random((2, 4)) < 0.3, -np.inf, rng.standard_normal((2, 4)))
    problem = layer(attn_mask=attn, key_padding_mask=padding)
    assert (2, 2, 3, 6) == problem.weights_shape
    assert (2, 3, 6) == problem.output_shape
    causal = replace(problem, case=problem.case.replace(attn="causal"))
    hidden, additive, under_causal = problem.hidden(), problem.additive(), causal.hidden()
    for n, h, i, j in np.ndindex(2, 2, 3, 6):
        parts = (attn[2 * n + h, i, j], padding[n, j]) if j < 4 else (0.0, 0.0)
        assert hidden[n, h, i, j] == (-np.inf in parts)
        assert under_causal[n, h, i, j] == (-np.inf in parts or i < j < 4)
        assert additive[n, h, i, j] == sum(each for each in parts if each > -np.inf)
    assert not problem.masked_rows().any()
    bare = layer(attn_mask=attn > 0, key_padding_mask=None, bias_k=None, bias_v=None)
    bare = replace(bare, case=bare.case.replace(zero_attn="no"))
    assert 0 == bare.appended
    assert not bare.additive().any()
    assert np.array_equal(bare.hidden(), (attn > 0).reshape(2, 2, 3, 4))
    assert np.array_equal(bare.masked_rows(), (attn > 0).all(axis=-1).reshape(2, 2, 3))
    assert not bare.replace(attn_mask=None).masked_rows().any()
    assert bare.replace(key_padding_mask=np.ones((2, 4), bool)).masked_rows().all()


def test_float_masks_alone_have_sums_in_their_shapes() -> None:
    """Kills `is` for `!=` with bool: a mask that hides has no gradient, each float one has."""
    scores = np.arange(2.0 * 2 * 3 * 4).reshape(2, 2, 3, 4)
    flat, deep, padding = np.zeros((3, 4)), np.zeros((4, 3, 4)), np.zeros((2, 4))
    sums = layer(attn_mask=flat, key_padding_mask=padding).mask_sums(scores)
    assert np.array_equal(sums["attn_mask"], scores.sum(axis=(0, 1)))
    assert np.array_equal(sums["key_padding_mask"], scores.sum(axis=(1, 2)))
    sums = layer(attn_mask=deep, key_padding_mask=padding > 0).mask_sums(scores)
    assert ["attn_mask"] == list(sums)
    assert np.array_equal(sums["attn_mask"], scores.reshape(4, 3, 4))
    assert ["key_padding_mask"] == list(
        layer(attn_mask=flat > 0, key_padding_mask=padding).mask_sums(scores)
    )
    assert not layer(attn_mask=None, key_padding_mask=None).mask_sums(scores)


@pytest.mark.parametrize("shape", [(36, 5), (36,)], ids=["weight", "bias"])
def test_shared_heads_have_the_sum_of_their_gradients_at_the_first(shape: tuple[int, ...]) -> None:
    """Head by head: kills other axes and lengths of the split, and each condition left out."""
    case = Case(seed=0, batch=1, queries=1, keys=1, heads_count=6, head_dim=2, kv_heads_count=2)
    array = np.arange(np.prod(shape, dtype=float)).reshape(shape)
    problem = make_problem(case)
    found = problem.sum_shared_heads("in_proj_weight", array).reshape(3, 6, 2, -1)
    given = array.reshape(3, 6, 2, -1)
    expected = np.zeros_like(given)
    expected[0] = given[0]
    for part, head in np.ndindex(2, 6):
        expected[1 + part, head // 3 * 3] += given[1 + part, head]
    assert np.array_equal(expected, found)
    for other, name in (
        (case.replace(kv_heads_count=0), "in_proj_weight"),
        (case, "out_proj.weight"),
        (case.replace(form="qkv", projection="none"), "in_proj_weight"),
    ):
        assert make_problem(other).sum_shared_heads(name, array) is array


def test_lengths_are_those_of_a_padding_given_as_lengths() -> None:
    """Of a mask, or without one, there are none."""
    padding = np.array([[False, False, True, True], [False, True, True, True]])
    problem = layer(key_padding_mask=padding)
    assert problem.lengths is None
    suffix = replace(problem, case=problem.case.replace(padding="lengths"))
    assert suffix.lengths is not None
    assert [2, 1] == suffix.lengths.tolist()
    assert suffix.replace(key_padding_mask=None).lengths is None


def test_heads_are_split_and_merged_in_their_order() -> None:
    """Kills other axes: columns of head h are h D to (h + 1) D."""
    rows: Array = np.arange(2.0 * 3 * 8).reshape(2, 3, 8)
    heads = split_heads(rows, 4)
    for n, h, i, d in np.ndindex(2, 4, 3, 2):
        assert heads[n, h, i, d] == rows[n, i, 2 * h + d]
    assert np.array_equal(rows, merge_heads(heads))


def test_a_layers_own_weights_are_of_its_case_alone() -> None:
    """Kills an order for `!=` in sizes, `is` for `is not` in arrays, True where an array differs.

    A problem of another case loses the biases that the layer lacks, and keeps the others.
    """
    problem = layer()
    arrays = {"w_q": problem.w_q, "b_q": np.zeros(6), "b_out": problem.b_out}
    own = OwnWeights(
        arrays={name: np.asarray(array) for name, array in arrays.items()},
        features={"bias": "yes"}, sizes={"heads_count": 2, "head_dim": 3}, places={},
    )  # fmt: skip
    given = own.problem(problem)
    assert own.are_of(given)
    assert not own.are_of(problem)
    assert not own.are_of(given.replace(b_out=None))
    for size in (1, 4):
        assert not own.are_of(replace(given, case=given.case.replace(head_dim=size)))
        other = make_problem(problem.case.replace(head_dim=size))
        lacking = own.problem(other)
        assert lacking.b_q is not None
        assert not lacking.b_q.any()
        assert lacking.b_out is other.b_out
        assert lacking.w_q is other.w_q
    assert own.case(problem.case.replace(head_dim=9, bias="no")) == problem.case
    assert "judged at its own sizes alone: num_heads 2, head_dim 3" == own.sentence
    placed = replace(own, places={"q": ("w_q",), "o": ("w_out", "b_out")})
    assert "judged with its own weights: q as w_q, o as w_out b_out" == placed.sentence
    left = replace(placed, left_over=("a", "b"))
    assert left.sentence == f"{placed.sentence}; left over: a, b"


@pytest.mark.parametrize("projection", ["by_head", "shared"])
def test_weights_stay_those_of_each_heads_own_channels(projection: str) -> None:
    """Whatever is put in their place, only blocks are left; one for all where it is shared."""
    case = parse("mha-N2-L3-S3-H3-D2-bias-float64-s1").replace(projection=projection)
    drawn = make_problem(case)
    problem = drawn.replace(w_k=np.arange(36.0).reshape(6, 6), b_k=np.arange(6.0))
    heads = [0, 0, 0] if projection == "shared" else [0, 1, 2]
    blocks = np.arange(36.0).reshape(3, 2, 3, 2)
    key, bias, query = (np.asarray(a) for a in (problem.w_k, problem.b_k, drawn.w_q))
    for weight in (key, query):
        parted = weight.reshape(3, 2, 3, 2).swapaxes(1, 2)
        assert not parted[~np.eye(3, dtype=bool)].any()
        assert (np.ptp(parted[range(3), range(3)], axis=0) == 0).all() == (projection == "shared")
    for head, taken in enumerate(heads):
        own = key.reshape(3, 2, 3, 2)[head, :, head]
        assert np.array_equal(own, blocks[taken, :, taken])
    assert np.array_equal(bias.reshape(3, 2), np.arange(6.0).reshape(3, 2)[heads])


@pytest.mark.parametrize("projection", ["by_head", "shared"])
def test_a_gradient_of_own_channels_is_that_of_what_the_layer_holds(projection: str) -> None:
    """Held against the change of a linear function: kills a block left out and a sum left out."""
    case = parse("mha-N1-L2-S2-H3-D2-bias-float64-s1").replace(projection=projection)
    problem = make_problem(case)
    rng = np.random.Generator(np.random.Philox(2))
    for name, shape in (("in_proj_weight", (18, 6)), ("in_proj_bias", (18,))):
        gradient, change = rng.standard_normal((2, *shape))
        parts = {f"{name[8]}_{part}": a for part, a in zip("qkv", np.split(change, 3), strict=True)}
        held = head_projections.restricted(case, parts)
        moved = np.concatenate([held[each] for each in parts])
        summed = problem.sum_shared_heads(name, gradient)
        first = np.ones(6, dtype=bool) if projection == "by_head" else np.arange(6) < 2
        assert not summed.reshape(3, 6, -1)[:, ~first].any()
        assert np.isclose((summed * moved).sum(), (gradient * moved).sum())
