"""Fixed matrices (5 tokens, width 6): printed outputs and weights, swapped rows, torch's answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
import torch

from mha_numpy.textbook import packed

Array: TypeAlias = npt.NDArray[Any]
Real: TypeAlias = type[np.floating[Any]]
Inputs: TypeAlias = tuple[Array, Array, Array, Array]
Heads: TypeAlias = tuple[Array, list[Array]]
Attention: TypeAlias = Callable[[Array, Array, Array, Array, int], Heads]

X = np.array(
    [
        [0.7, -0.8, -1.2, -1.0, -0.0, -0.3],
        [2.7, 0.1, 1.6, 1.8, 1.5, 0.3],
        [0.1, 2.6, -0.1, -1.3, -0.5, -0.7],
        [1.1, 1.5, 1.0, -0.5, 0.4, 0.4],
        [-0.7, -0.7, 0.7, -1.5, -0.8, 1.0],
    ]
)
WQ = np.array(
    [
        [-1.7, 1.6, 0.9, -0.5, 0.4, -1.0],
        [-0.4, 1.0, -0.3, 1.0, 0.5, 1.1],
        [0.4, -0.9, -1.0, 0.5, -1.4, 0.0],
        [0.3, 1.4, -1.2, 0.2, 0.1, 1.6],
        [-0.8, 0.8, -0.7, -1.3, 0.3, 0.8],
        [1.1, 0.3, -1.5, -2.3, 2.2, -0.7],
    ]
)
WK = np.array(
    [
        [0.3, -0.4, -1.3, 0.3, -1.7, 1.1],
        [-2.3, -1.1, 0.6, -1.2, 2.2, 0.3],
        [1.1, -0.4, -0.5, 1.9, -1.1, -1.2],
        [-0.4, 1.0, -1.7, 0.0, -3.3, -1.4],
        [-0.9, -1.1, -1.0, 1.4, 1.3, 1.2],
        [-0.7, 0.4, 0.4, -1.4, -0.2, -0.5],
    ]
)
WV = np.array(
    [
        [-0.1, 0.7, 1.0, -0.1, 1.6, 0.9],
        [0.4, -1.0, -0.7, -0.6, -0.9, -0.1],
        [-0.4, 0.5, -1.4, 0.1, 0.6, 0.4],
        [1.4, -1.3, -1.3, -0.6, 1.6, -0.2],
        [-0.4, -0.6, -1.4, -1.0, 0.4, -0.8],
        [0.2, 0.5, 0.4, -0.5, 1.4, 2.3],
    ]
)
# As printed, one digit after the point.
PRINTED_OUTPUT = {
    1: [
        [-0.7, -0.9, 0.5, 0.1, -5.5, -1.1],
        [-0.4, 0.6, 0.6, -0.6, 2.0, 0.5],
        [0.3, -0.1, -2.4, -1.9, 4.9, 1.8],
        [-0.7, -0.7, 0.4, -0.1, -4.5, -0.7],
        [-2.0, 3.3, 2.1, 1.6, -1.3, 2.8],
    ],
    3: [
        [-0.7, -0.9, 0.7, 0.2, -1.5, 2.9],
        [-1.1, 0.9, -3.9, -2.9, -3.0, -0.5],
        [-0.7, -0.9, 1.6, 1.2, 5.8, 1.5],
        [-0.7, -0.7, -3.8, -2.8, -5.1, -0.9],
        [-0.2, 0.3, 1.0, 0.2, -1.3, 3.0],
    ],
}
# As printed, two significant digits.
PRINTED_WEIGHTS = [
    ["4.9e-07", "4.0e-14", "9.9e-01", "1.7e-05", "6.1e-03"],
    ["4.8e-01", "3.6e-01", "1.5e-01", "2.1e-02", "4.0e-04"],
    ["1.9e-02", "5.8e-01", "9.4e-02", "2.8e-01", "3.2e-02"],
    ["3.0e-02", "1.2e-02", "8.5e-01", "9.9e-02", "1.1e-02"],
    ["4.7e-04", "7.3e-03", "1.6e-02", "4.0e-02", "9.4e-01"],
]
AS_GIVEN = [0, 1, 2, 3, 4]
SWAPPED = [1, 0, 2, 3, 4]

each_form = pytest.mark.parametrize(
    "attention", [packed.multi_head_attention, packed.multi_head_attention_loop]
)
each_count = pytest.mark.parametrize("H", PRINTED_OUTPUT)
each_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])
each_order = pytest.mark.parametrize(
    "rows", [AS_GIVEN, SWAPPED], ids=["as-given", "rows-0-and-1-swapped"]
)


def with_torch(x: Array, Wq: Array, Wk: Array, Wv: Array, H: int) -> Heads:
    """torch.nn.MultiheadAttention with W_q, W_k, W_v as in_proj and the identity as out_proj."""
    sequence, *matrices = (torch.from_numpy(array.copy()) for array in (x, Wq, Wk, Wv))
    width = sequence.shape[1]
    layer = torch.nn.MultiheadAttention(width, H, dtype=sequence.dtype)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([matrix.T for matrix in matrices]))
        layer.out_proj.weight.copy_(torch.eye(width))
        layer.in_proj_bias.zero_()
        layer.out_proj.bias.zero_()
        # The batch, of one, is the second axis.
        given = sequence[:, None]
        output, weights = layer(given, given, given, average_attn_weights=False)
    return output[:, 0].numpy(), list(weights[0].numpy())


def interleaved(x: Array, Wq: Array, Wk: Array, Wv: Array, H: int) -> Heads:
    """Wrong: head h takes every H-th column, from column h on."""
    order = np.arange(Wq.shape[1]).reshape(-1, H).T.ravel()
    output, weights = packed.multi_head_attention(x, Wq[:, order], Wk[:, order], Wv[:, order], H)
    return output[:, np.argsort(order)], weights


def split_without_transpose(x: Array, Wq: Array, Wk: Array, Wv: Array, H: int) -> Heads:
    """Wrong: (L, E) reshaped to (H, L, D) as it lies in memory, so that heads mix tokens."""
    rows = x.shape[0]
    q, k, v = ((x @ matrix).reshape(H, rows, -1) for matrix in (Wq, Wk, Wv))
    logits = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return (weights @ v).reshape(rows, -1), list(weights)


def weights_not_transposed(x: Array, Wq: Array, Wk: Array, Wv: Array, H: int) -> Heads:
    """Wrong: weights applied as torch applies its own, x @ W.T."""
    return packed.multi_head_attention(x, Wq.T, Wk.T, Wv.T, H)


def with_position(x: Array, Wq: Array, Wk: Array, Wv: Array, H: int) -> Heads:
    """Wrong: the first token is something special."""
    marked = x.copy()
    marked[0] += 0.5
    return packed.multi_head_attention(marked, Wq, Wk, Wv, H)


def in_dtype(rows: list[int], dtype: Real) -> Inputs:
    """Return the inputs, rows of X in this order, in the dtype."""
    x, wq, wk, wv = (array.astype(dtype) for array in (X[rows], WQ, WK, WV))
    return x, wq, wk, wv


def largest_difference(expected: Heads, actual: Heads) -> float:
    """Return the largest difference in output or weights, or NaN."""
    pairs = zip((expected[0], *expected[1]), (actual[0], *actual[1]), strict=True)
    return float(np.max([np.abs(one - other).max() for one, other in pairs]))


def allowed(H: int, rows: list[int], dtype: Real) -> float:
    """Return 4 times how far torch is from itself where it adds the same products in other orders.

    Features of X, with the rows of the weights, can stand in any order: that changes nothing but
    the rounding. 4 is the factor the harness allows between legitimate orders.
    """
    x, wq, wk, wv = in_dtype(rows, dtype)
    plain = with_torch(x, wq, wk, wv, H)
    orders = [np.random.default_rng(seed).permutation(x.shape[1]) for seed in range(8)]
    reordered = [with_torch(x[:, o], wq[o], wk[o], wv[o], H) for o in orders]
    return 4 * max(largest_difference(plain, other) for other in reordered)


def difference(attention: Attention, H: int, rows: list[int], dtype: Real) -> float:
    """Return how far output and weights are from torch's."""
    x, wq, wk, wv = in_dtype(rows, dtype)
    return largest_difference(with_torch(x, wq, wk, wv, H), attention(x, wq, wk, wv, H))


def swap_shows(attention: Attention, H: int) -> float:
    """Return how far the output of swapped rows is from the swapped rows of the output."""
    expected = attention(X, WQ, WK, WV, H)[0][SWAPPED]
    actual = attention(X[SWAPPED], WQ, WK, WV, H)[0]
    return float(np.abs(expected - actual).max())


def printed(attention: Attention, H: int, rows: list[int]) -> list[list[float]]:
    """Return the output as printed."""
    rounded: list[list[float]] = np.round(attention(X[rows], WQ, WK, WV, H)[0], 1).tolist()
    return rounded


@each_order
@each_count
@pytest.mark.parametrize(
    "attention", [packed.multi_head_attention, packed.multi_head_attention_loop, with_torch]
)
def test_the_printed_outputs(attention: Attention, H: int, rows: list[int]) -> None:
    """Both forms and torch print what is printed for 1 and 3 heads, before and after the swap."""
    expected = [PRINTED_OUTPUT[H][row] for row in rows]
    actual = printed(attention, H, rows)
    assert expected == actual


def test_the_printed_weights_of_one_head() -> None:
    """The weights span 14 orders of magnitude and come out to both printed digits."""
    _, weights = packed.self_attention(X, WQ, WK, WV)
    expected = PRINTED_WEIGHTS
    actual = [[f"{weight:.1e}" for weight in row] for row in weights]
    assert expected == actual


def test_one_head_is_self_attention() -> None:
    """The multi-head form with H = 1 returns the output and the weights of the single head."""
    expected, expected_weights = packed.self_attention(X, WQ, WK, WV)
    actual, (actual_weights,) = packed.multi_head_attention(X, WQ, WK, WV, 1)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(actual_weights, expected_weights)


@each_dtype
@each_order
@each_count
@each_form
def test_torch_agrees(attention: Attention, H: int, rows: list[int], dtype: Real) -> None:
    """Both forms equal torch, output and the weights of each head, in float32 and in float64."""
    assert difference(attention, H, rows, dtype) <= allowed(H, rows, dtype)


@each_count
@each_form
def test_there_is_one_array_of_weights_for_each_head(attention: Attention, H: int) -> None:
    """The weights are a list of H arrays (L, L), rows summing to 1 but for L roundings."""
    _, weights = attention(X, WQ, WK, WV, H)
    assert [(5, 5)] * H == [head.shape for head in weights]
    assert np.abs(np.sum(weights, axis=-1) - 1).max() <= 5 * np.finfo(float).eps


@each_dtype
@each_form
def test_the_dtype_that_comes_in_goes_out(attention: Attention, dtype: Real) -> None:
    """Outputs and weights have the dtype of the inputs."""
    x, wq, wk, wv = in_dtype(SWAPPED, dtype)
    output, weights = attention(x, wq, wk, wv, 3)
    assert {np.dtype(dtype)} == {output.dtype, *(head.dtype for head in weights)}


@each_count
@each_form
def test_swapping_rows_swaps_rows(attention: Attention, H: int) -> None:
    """Rows 0 and 1 exchanged in the input are exchanged in the output; the others stay."""
    assert swap_shows(attention, H) <= allowed(H, SWAPPED, np.float64)


def test_the_swapped_rows_differ() -> None:
    """The two rows differ by more than any rounding, so that the swap is a test at all."""
    output, _ = packed.multi_head_attention(X, WQ, WK, WV, 3)
    assert np.abs(output[0] - output[1]).min() > allowed(3, SWAPPED, np.float64)


def test_heads_make_a_difference() -> None:
    """One head and three give different outputs."""
    assert PRINTED_OUTPUT[1] != PRINTED_OUTPUT[3]
    assert printed(packed.multi_head_attention, 1, SWAPPED) != printed(
        packed.multi_head_attention, 3, SWAPPED
    )


@each_dtype
@pytest.mark.parametrize("wrong", [interleaved, split_without_transpose, weights_not_transposed])
def test_wrong_heads_are_caught(wrong: Attention, dtype: Real) -> None:
    """Wrong ways to split three heads fail the printed output and the comparison with torch."""
    assert printed(wrong, 3, AS_GIVEN) != PRINTED_OUTPUT[3]
    assert difference(wrong, 3, AS_GIVEN, dtype) > allowed(3, AS_GIVEN, dtype)


def test_interleaved_heads_pass_with_one_head() -> None:
    """With one head there is nothing to interleave: only the example of three can see it."""
    assert printed(interleaved, 1, AS_GIVEN) == PRINTED_OUTPUT[1]


def test_a_token_with_a_place_is_caught_by_the_swap() -> None:
    """An attention that knows which row is the first one breaks the swap."""
    assert swap_shows(with_position, 3) > allowed(3, SWAPPED, np.float64)
