"""Attention of arrays that are already projected, one sequence, no output projection.

Taught as three functions that follow each other: `compute_qkv`, then `multi_head_attention`, which
is `self_attention` on equal slices of the width. The same as `torch.nn.MultiheadAttention` with
W_q, W_k, W_v transposed in `in_proj_weight`, no biases, and the identity as `out_proj`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy.textbook._heads import attend_slices
from mha_numpy.textbook._inputs import real_arrays, require_heads, require_size
from mha_numpy.validation import quiet

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = [
    "compute_qkv",
    "multi_head_attention",
    "multi_head_attention_loop",
    "self_attention",
]


@quiet
def compute_qkv(
    X: ArrayLike, W_q: ArrayLike, W_k: ArrayLike, W_v: ArrayLike
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Project the rows of X into queries, keys and values.

        Q = X W_q        K = X W_k        V = X W_v

    X is (L, E) and each weight matrix (E, any width); the source has (E, E). Torch applies the
    transpose, x @ W.T.

    Raises
    ------
    TypeError
        an array is not of real numbers.
    ValueError
        an array is no matrix, or the rows of a weight matrix are not as many as X is wide.
    """
    axes = {"X": "L E", "W_q": "E D", "W_k": "E D", "W_v": "E D"}
    (x, *matrices), dtype = real_arrays(axes, X=X, W_q=W_q, W_k=W_k, W_v=W_v)
    for name, matrix in zip(("W_q", "W_k", "W_v"), matrices, strict=True):
        require_size(name, matrix, 0, x.shape[1], "the width of `X`")
    q, k, v = ((x @ matrix).astype(dtype, copy=False) for matrix in matrices)
    return q, k, v


@quiet
def self_attention(Q: ArrayLike, K: ArrayLike, V: ArrayLike) -> NDArray[Any]:
    """Return attention of a single head, (L, Dv).

        softmax(Q K^T / sqrt(D)) V, the softmax over the keys

    Q is (L, D), K is (S, D), V is (S, Dv); the source has L = S and D = Dv. The row's maximum is
    subtracted before the exponential, so that no logit is too large.

    Raises
    ------
    TypeError
        an array is not of real numbers.
    ValueError
        an array is no matrix, or the shapes do not fit each other.
    """
    return multi_head_attention(Q, K, V, 1)


@quiet
def multi_head_attention(Q: ArrayLike, K: ArrayLike, V: ArrayLike, n_heads: int) -> NDArray[Any]:
    """Return the outputs of all heads side by side, (L, H*Dv).

        Concat(head_1, ..., head_H), head_h = `self_attention` of the h-th slices of Q, K and V

    Q is (L, H*D), K is (S, H*D), V is (S, H*Dv); the source has L = S and D = Dv. All heads are
    computed at once; `multi_head_attention_loop` takes one after the other, as the source does.

    Raises
    ------
    TypeError
        an array is not of real numbers, or `n_heads` is no integer.
    ValueError
        an array is no matrix, the shapes do not fit each other, or `n_heads` does not divide the
        widths.
    """
    (q, k, v), dtype, n_heads = _inputs(Q, K, V, n_heads)
    merged, _ = attend_slices(q[None], k[None], v[None], n_heads)
    result: NDArray[Any] = merged[0].astype(dtype, copy=False)
    return result


@quiet
def multi_head_attention_loop(
    Q: ArrayLike, K: ArrayLike, V: ArrayLike, n_heads: int
) -> NDArray[Any]:
    """Return what `multi_head_attention` returns, head by head; raises the same."""
    arrays, dtype, n_heads = _inputs(Q, K, V, n_heads)
    slices = zip(*(np.split(array, n_heads, axis=1) for array in arrays), strict=True)
    return np.concatenate([self_attention(*head) for head in slices], axis=1).astype(dtype)


def _inputs(
    Q: ArrayLike, K: ArrayLike, V: ArrayLike, n_heads: int
) -> tuple[list[NDArray[Any]], DTypeLike, int]:
    arrays, dtype = real_arrays({"Q": "L E", "K": "S E", "V": "S E"}, Q=Q, K=K, V=V)
    q, k, v = arrays
    require_size("K", k, 1, q.shape[1], "the width of `Q`")
    require_size("V", v, 0, k.shape[0], "the number of rows of `K`")
    for name, array in zip("QKV", arrays, strict=True):
        n_heads = require_heads("n_heads", n_heads, array.shape[1], f"the width of `{name}`")
    return arrays, dtype, n_heads
