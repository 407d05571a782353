"""Valid lengths, keep-masks and dropout of the textbook classes."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
import torch

from mha_numpy.textbook import keep_mask, valid_lens
from mha_numpy.textbook.lengths import hidden_keys

Array: TypeAlias = npt.NDArray[Any]

# Sizes of which no two are alike, no head width a multiple of 8, more keys than queries.
N, L, S, H, D = 2, 5, 7, 3, 11
E = H * D

each_class = pytest.mark.parametrize(
    "kind", [keep_mask.MultiHeadAttention, keep_mask.EfficientMultiHeadAttention]
)


def layer(dropout: float = 0.0) -> valid_lens.MultiHeadAttention:
    """Return a layer with biases and weights small enough for soft attention."""
    made = valid_lens.MultiHeadAttention(E, H, dropout, True, rng=19)
    for letter in "qkvo":
        setattr(made, f"W_{letter}", (getattr(made, f"W_{letter}") - 0.5) / 2)
    return made


def inputs() -> tuple[Array, Array, Array]:
    """Return queries, keys, and values that are not the keys."""
    rng = np.random.default_rng(23)
    queries = rng.standard_normal((N, L, E))
    keys, values = rng.standard_normal((2, N, S, E))
    return queries, keys, values


def test_lengths_hide_what_is_at_and_beyond_them() -> None:
    """Written out: True = hidden; a length of 0 hides all keys, S hides none."""
    expected = [[False, True, True], [True, True, True], [False, False, False]]
    per_sample = hidden_keys([1, 0, 3], 3)
    assert (3, 1, 1, 3) == per_sample.shape
    assert expected == per_sample[:, 0, 0].tolist()
    per_query = hidden_keys([[1, 0, 3]], 3)
    assert (1, 1, 3, 3) == per_query.shape
    assert expected == per_query[0, 0].tolist()


@pytest.mark.parametrize(
    "lengths",
    [np.array([4, 6]), np.arange(1, 1 + N * L).reshape(N, L) % S + 1],
    ids=["per-sample", "per-query"],
)
def test_lengths_are_the_masks_of_torch(lengths: Array) -> None:
    """Per sample and per query, with biases, values unlike keys: torch with the same mask."""
    attention, (q, k, v) = layer(), inputs()
    reference = torch.nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
    arrays = {
        "in_proj_weight": np.concatenate([attention.W_q.T, attention.W_k.T, attention.W_v.T]),
        "in_proj_bias": np.concatenate([attention.b_q, attention.b_k, attention.b_v]),
        "out_proj.weight": attention.W_o.T.copy(),
        "out_proj.bias": attention.b_o,
    }
    reference.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    shown = np.arange(S) < np.broadcast_to(lengths.reshape(N, -1, 1), (N, L, 1))
    hidden = torch.from_numpy(np.repeat(~shown, H, axis=0))

    def with_torch(order: Array) -> Array:
        """Give torch the features of the inputs in this order, which changes only rounding."""
        given = (torch.from_numpy(array[..., order]) for array in (q, k, v))
        in_proj = torch.from_numpy(arrays["in_proj_weight"][:, order])
        with torch.no_grad():
            reference.in_proj_weight.copy_(in_proj)
            output: Array = reference(*given, attn_mask=hidden)[0].numpy()
        return output

    expected = with_torch(np.arange(E))
    orders = (np.random.default_rng(seed).permutation(E) for seed in range(8))
    allowed = 4 * max(np.abs(with_torch(order) - expected).max() for order in orders)
    assert np.abs(attention.forward(q, k, v, lengths) - expected).max() <= allowed
    assert np.abs(attention.forward(q, k, v, lengths % S + 1) - expected).max() > allowed


def test_full_lengths_hide_nothing() -> None:
    """Length S for every sample is the same as no lengths."""
    expected = layer().forward(*inputs())
    actual = layer().forward(*inputs(), np.full(N, S))
    np.testing.assert_array_equal(actual, expected)


def test_length_0_gives_nan() -> None:
    """Where nothing is left to attend to the output is NaN, and only there."""
    lengths = np.full((N, L), S)
    lengths[1, 2] = 0
    output = layer().forward(*inputs(), lengths)
    expected = np.broadcast_to((lengths == 0)[..., None], output.shape)
    np.testing.assert_array_equal(np.isnan(output), expected)


def test_dropout_of_everything_leaves_the_bias() -> None:
    """With p = 1 no weight is left: the output is b_o."""
    attention = layer(1.0)
    output = attention.forward(*inputs(), rng=np.random.default_rng(5))
    np.testing.assert_array_equal(output, np.broadcast_to(attention.b_o, output.shape))


def test_dropout_of_nothing_changes_nothing() -> None:
    """With p = 0 a generator makes no difference."""
    expected = layer(0.0).forward(*inputs())
    actual = layer(0.0).forward(*inputs(), rng=np.random.default_rng(5))
    np.testing.assert_array_equal(actual, expected)


def test_dropout_is_repeatable() -> None:
    """The same seed drops the same weights, another seed others."""
    expected, actual, other = (
        layer(0.3).forward(*inputs(), rng=np.random.default_rng(seed)) for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(actual, expected)
    assert not np.array_equal(other, expected)


def test_dropout_keeps_the_mean() -> None:
    """Kept weights are divided by 1 - p: the mean of many draws is the output without dropout.

    The mean of n draws scatters by their standard deviation over sqrt(n); of 330 numbers none
    should be 5 of those off (chance 2e-4). Without the division by 1 - p nearly all would be.
    """
    attention, rng, draws = layer(0.3), np.random.default_rng(29), 400
    outputs = np.stack([attention.forward(*inputs(), [4, 6], rng=rng) for _ in range(draws)])
    expected = attention.forward(*inputs(), [4, 6])
    scatter = outputs.std(axis=0, ddof=1) / np.sqrt(draws)
    assert (np.abs(outputs.mean(axis=0) - expected) <= 5 * scatter).all()
    undivided = 0.7 * (outputs.mean(axis=0) - attention.b_o) + attention.b_o
    assert not (np.abs(undivided - expected) <= 5 * scatter).all()


def masked(kind: type[keep_mask.MultiHeadAttention], mask: object) -> tuple[Array, Array]:
    """Return output and weights of a sequence of L tokens."""
    x = np.random.default_rng(31).standard_normal((L, E))
    return kind(E, H, rng=37).forward(x, mask)  # type: ignore[arg-type] # whatever is given


@each_class
def test_masks_of_all_ranks_and_dtypes_say_the_same(
    kind: type[keep_mask.MultiHeadAttention],
) -> None:
    """(L,), (L, L) and (H, L, L), lists, integers, booleans and floats: one mask."""
    keys = np.array([1, 0, 1, 1, 0])
    expected = masked(kind, keys)
    for mask in (
        keys.tolist(),
        keys.astype(bool),
        keys.astype(float),
        np.broadcast_to(keys, (L, L)),
        np.broadcast_to(keys, (H, L, L)),
    ):
        for one, other in zip(expected, masked(kind, mask), strict=True):
            np.testing.assert_array_equal(other, one)


@each_class
def test_each_head_can_have_a_mask_of_its_own(kind: type[keep_mask.MultiHeadAttention]) -> None:
    """A mask (H, L, L) hides from each head what it says for that head."""
    mask = np.stack([np.tri(L), np.tri(L).T, np.ones((L, L))])
    _, weights = masked(kind, mask)
    np.testing.assert_array_equal(weights > 0, mask > 0)


@each_class
def test_a_query_that_sees_nothing_gets_nan(kind: type[keep_mask.MultiHeadAttention]) -> None:
    """Nor does it get the mean of all values, as it would where hiding were a large number."""
    output, weights = masked(kind, np.tri(L, k=-1))
    assert np.isnan(output[0]).all()
    assert np.isnan(weights[:, 0]).all()
    assert np.isfinite(output[1:]).all()
    assert np.isfinite(weights[:, 1:]).all()


def test_a_seed_and_its_generator_draw_the_same_weights() -> None:
    """`rng` takes a generator or its seed; both classes draw alike."""
    expected = keep_mask.MultiHeadAttention(E, H, rng=41)
    actual = keep_mask.EfficientMultiHeadAttention(E, H, rng=np.random.default_rng(41))
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))


def test_biases_are_zero_unless_asked_for() -> None:
    """Without `bias` they are zeros, and arrays of their own, so that setting one sets one."""
    attention = valid_lens.MultiHeadAttention(E, H)
    attention.b_q += 1
    assert not attention.b_k.any()
    assert layer().b_k.all()
