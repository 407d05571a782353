"""A layer with a keep-mask: shapes, looped and batched heads, costs and configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
import torch

from mha_numpy import costs, plot
from mha_numpy.textbook.keep_mask import EfficientMultiHeadAttention, MultiHeadAttention

Array: TypeAlias = npt.NDArray[Any]
Pair: TypeAlias = tuple[Array, Array]
Forward: TypeAlias = Callable[[MultiHeadAttention, Array, Array | None], Pair]

D_MODEL, NUM_HEADS, SEQ_LEN = 32, 4, 6
CAUSAL = np.tril(np.ones((SEQ_LEN, SEQ_LEN)))
PADDED = np.array([1, 1, 1, 1, 0, 0])

each_class = pytest.mark.parametrize("kind", [MultiHeadAttention, EfficientMultiHeadAttention])
each_mask = pytest.mark.parametrize(
    "mask", [None, CAUSAL, PADDED], ids=["no-mask", "causal", "padded"]
)
each_seed = pytest.mark.parametrize("seed", [5, 17], ids="seed={}".format)


def inputs(seed: int) -> Array:
    """Return a standard normal sequence of the example's shape.

    It is large, so that weights are far from uniform and heads far from each other.
    """
    return 5 * np.random.default_rng([seed, 4]).standard_normal((SEQ_LEN, D_MODEL))


def forward(attention: MultiHeadAttention, x: Array, mask: Array | None) -> Pair:
    """Call the layer on one sequence with its keep-mask."""
    return attention.forward(x, mask)


def mask_inverted(attention: MultiHeadAttention, x: Array, mask: Array | None) -> Pair:
    """Wrong: 1 is read as hidden, but for a token itself, so that no row is empty."""
    inverted = None if mask is None else np.maximum(1 - mask, np.eye(SEQ_LEN))
    return attention.forward(x, inverted)


def mask_on_weights(attention: MultiHeadAttention, x: Array, mask: Array | None) -> Pair:
    """Wrong: the mask is multiplied with the weights, so that rows no longer sum to 1."""
    output, weights = attention.forward(x)
    return output, weights * (1 if mask is None else mask)


def without_output_projection(attention: MultiHeadAttention, x: Array, mask: Array | None) -> Pair:
    """Wrong: heads are concatenated and returned."""
    attention.W_O = np.eye(D_MODEL)
    return attention.forward(x, mask)


def heads_in_reverse(attention: MultiHeadAttention, x: Array, mask: Array | None) -> Pair:
    """Wrong: the weights of the last head come first."""
    output, weights = attention.forward(x, mask)
    return output, weights[::-1]


def with_torch(
    attention: MultiHeadAttention, x: Array, mask: Array | None, order: Array | None = None
) -> Pair:
    """Return torch's output and weights of each head, its mask True where ours is 0.

    `order` is one in which torch is given the features of x.
    """
    order = np.arange(D_MODEL) if order is None else order
    layer = torch.nn.MultiheadAttention(D_MODEL, NUM_HEADS, bias=False, dtype=torch.float64)
    matrices = (attention.W_Q, attention.W_K, attention.W_V)
    arrays = {
        "in_proj_weight": np.concatenate([matrix[order].T for matrix in matrices]),
        "out_proj.weight": attention.W_O.T.copy(),
    }
    layer.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    given = torch.from_numpy(x[:, order])
    hidden = None
    if mask is not None:
        hidden = torch.from_numpy(np.broadcast_to(mask == 0, (SEQ_LEN, SEQ_LEN)).copy())
    with torch.no_grad():
        output, weights = layer(given, given, given, attn_mask=hidden, average_attn_weights=False)
    return output.numpy(), weights.numpy()


def largest_difference(expected: Pair, actual: Pair) -> float:
    """Return the largest difference in output or weights, or NaN."""
    pairs = zip(expected, actual, strict=True)
    return float(np.max([np.abs(one - other).max() for one, other in pairs]))


def allowed(attention: MultiHeadAttention, x: Array, mask: Array | None) -> float:
    """Return 4 times how far torch is from itself where it adds the features in other orders.

    4 is the factor the harness allows between legitimate orders.
    """
    plain = with_torch(attention, x, mask)
    orders = [np.random.default_rng(order).permutation(D_MODEL) for order in range(8)]
    return 4 * max(
        largest_difference(plain, with_torch(attention, x, mask, order)) for order in orders
    )


@each_class
@each_mask
def test_the_printed_shapes(kind: type[MultiHeadAttention], mask: Array | None) -> None:
    """d_model 32, 4 heads and 6 tokens give an output (6, 32) and weights (4, 6, 6)."""
    output, weights = kind(D_MODEL, NUM_HEADS, rng=5).forward(inputs(5), mask)
    assert (6, 32) == output.shape
    assert (4, 6, 6) == weights.shape


@each_seed
@each_mask
@each_class
def test_torch_agrees(kind: type[MultiHeadAttention], mask: Array | None, seed: int) -> None:
    """Output and weights of each head equal torch's, torch's mask being the opposite."""
    attention, x = kind(D_MODEL, NUM_HEADS, rng=seed), inputs(seed)
    assert largest_difference(
        with_torch(attention, x, mask), forward(attention, x, mask)
    ) <= allowed(attention, x, mask)


@each_seed
@each_mask
def test_looped_and_batched_are_equal(mask: Array | None, seed: int) -> None:
    """One head after the other and all at once are the same function of the same weights."""
    looped = MultiHeadAttention(D_MODEL, NUM_HEADS, rng=seed)
    batched = EfficientMultiHeadAttention(D_MODEL, NUM_HEADS, rng=seed)
    x = inputs(seed)
    expected = forward(looped, x, mask)
    actual = forward(batched, x, mask)
    assert largest_difference(expected, actual) <= allowed(looped, x, mask)


@each_class
@pytest.mark.parametrize("mask", [CAUSAL, PADDED], ids=["causal", "padded"])
def test_hidden_keys_have_weight_0(kind: type[MultiHeadAttention], mask: Array) -> None:
    """Where the mask is 0 the weight is exactly 0, elsewhere above; rows sum to 1 as rounded."""
    _, weights = kind(D_MODEL, NUM_HEADS, rng=5).forward(inputs(5), mask)
    expected = np.broadcast_to(mask != 0, weights.shape)
    np.testing.assert_array_equal(weights > 0, expected)
    assert np.abs(weights.sum(axis=-1) - 1).max() <= SEQ_LEN * np.finfo(float).eps


def test_heads_have_patterns_of_their_own() -> None:
    """Each of the four heads attends differently."""
    _, weights = MultiHeadAttention(D_MODEL, NUM_HEADS, rng=5).forward(inputs(5))
    differences = np.abs(weights[:, None] - weights[None]).max(axis=(2, 3))
    assert (differences[~np.eye(NUM_HEADS, dtype=bool)] > 0.1).all()


@pytest.mark.parametrize(
    "wrong",
    [mask_inverted, mask_on_weights, without_output_projection, heads_in_reverse],
)
def test_wrong_attentions_are_caught(wrong: Forward) -> None:
    """A mask of the other polarity or in the wrong place, no W_O, and mixed heads are seen."""
    attention, x = MultiHeadAttention(D_MODEL, NUM_HEADS, rng=5), inputs(5)
    expected, bound = with_torch(attention, x, CAUSAL), allowed(attention, x, CAUSAL)
    assert largest_difference(expected, wrong(attention, x, CAUSAL)) > bound


def test_the_cost_table() -> None:
    """For 100 tokens and width 512, one head and eight do 5,120,000 operations of attention."""
    single, multi = (costs.textbook_operations(100, 512, heads) for heads in (1, 8))
    assert 5_120_000 == single.attention == multi.attention
    assert 3 * 512 * 512 == single.projections == multi.projections
    assert 512 * 512 == single.output == multi.output
    assert 6_168_576 == single.total == multi.total


def test_heads_that_keep_the_whole_width_would_cost_more() -> None:
    """Equality is no matter of course: eight heads of full width cost eight times as much."""
    full_width_heads = costs.textbook_operations(100, 8 * 512, 8)
    assert 8 * 5_120_000 == full_width_heads.attention


@pytest.mark.parametrize(
    ("name", "embed_dim", "num_heads", "head_dim"),
    [
        ("Transformer base", 512, 8, 64),
        ("Transformer large", 1024, 16, 64),
        ("GPT-2 small", 768, 12, 64),
        ("GPT-3", 12288, 96, 128),
    ],
)
def test_the_table_of_configurations(
    name: str, embed_dim: int, num_heads: int, head_dim: int
) -> None:
    """Four published models, head_dim being derived from the other two."""
    (found,) = (each for each in costs.CONFIGURATIONS if each.name == name)
    assert (embed_dim, num_heads, head_dim) == (found.embed_dim, found.num_heads, found.head_dim)


def test_the_simulated_heads_attend_where_their_kind_says() -> None:
    """One row of each kind, for a sentence of six tokens; every row sums to 1."""
    heads = plot.simulated_heads(["The", "quick", "brown", "fox", "jumps", "."])
    assert [0.0, 0.7, 0.3, 0.0, 0.0, 0.0] == heads["positional"][2].tolist()
    np.testing.assert_array_almost_equal_nulp(
        heads["syntactic"][4], np.array([0.6, 0.0, 0.0, 0.8, 0.1, 0.0]) / 1.5, 4
    )
    np.testing.assert_array_almost_equal_nulp(
        heads["semantic"][1], np.array([0.0, 0.2, 0.5, 0.0, 0.0, 0.0]) / 0.7, 4
    )
    assert [0.7, 0.0, 0.0, 0.3, 0.0, 0.0] == heads["beginning of sequence"][3].tolist()
    np.testing.assert_array_almost_equal_nulp(
        heads["delimiter"][0], np.array([0.2, 0.0, 0.0, 0.0, 0.0, 0.6]) / 0.8, 4
    )
    assert (heads["uniform"] == 1 / 6).all()
