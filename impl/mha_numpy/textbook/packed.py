"""Attention of a sequence with the weights of all heads packed into one matrix each, no out_proj.

Head h has columns h*D to (h+1)*D of Wq, Wk and Wv. The same as `torch.nn.MultiheadAttention` with
`in_proj_weight` = cat([Wq.T, Wk.T, Wv.T]), no biases, the identity as `out_proj` and
average_attn_weights=False.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy.textbook._heads import attend_slices
from mha_numpy.textbook._inputs import real_arrays, require_heads, require_size
from mha_numpy.validation import quiet

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = ["multi_head_attention", "multi_head_attention_loop", "self_attention"]


@quiet
def self_attention(
    X: ArrayLike, Wq: ArrayLike, Wk: ArrayLike, Wv: ArrayLike
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return (output, weights) of a single head, (L, Dv) and (L, L).

        weights = softmax(X Wq (X Wk)^T / sqrt(D))        output = weights X Wv

    X is (L, E), Wq and Wk are (E, D), Wv is (E, Dv).

    Raises
    ------
    TypeError
        an array is not of real numbers.
    ValueError
        an array is no matrix, or the shapes do not fit each other.
    """
    output, (weights,) = multi_head_attention(X, Wq, Wk, Wv, 1)
    return output, weights


@quiet
def multi_head_attention(
    X: ArrayLike, Wq: ArrayLike, Wk: ArrayLike, Wv: ArrayLike, H: int
) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Return (concatenated, weights of each head), (L, H*Dv) and H arrays (L, L).

        concatenated = Concat(head_1, ..., head_H)
        head_h = `self_attention` of X with the h-th slices of the columns of Wq, Wk and Wv

    X is (L, E), Wq and Wk are (E, H*D), Wv is (E, H*Dv); the source has D = Dv = E / H, and where H
    does not divide E it leaves columns out, which is an error here. All heads are computed at once;
    `multi_head_attention_loop` takes one after the other, as the source does.

    Raises
    ------
    TypeError
        an array is not of real numbers, or `H` is no integer.
    ValueError
        an array is no matrix, the shapes do not fit each other, or `H` does not divide the widths.
    """
    (x, wq, wk, wv), dtype, H = _inputs(X, Wq, Wk, Wv, H)
    merged, weights = attend_slices((x @ wq)[None], (x @ wk)[None], (x @ wv)[None], H)
    return merged[0].astype(dtype, copy=False), list(weights[0].astype(dtype, copy=False))


@quiet
def multi_head_attention_loop(
    X: ArrayLike, Wq: ArrayLike, Wk: ArrayLike, Wv: ArrayLike, H: int
) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Return what `multi_head_attention` returns, head by head; raises the same."""
    (x, *matrices), dtype, H = _inputs(X, Wq, Wk, Wv, H)
    slices = zip(*(np.split(matrix, H, axis=1) for matrix in matrices), strict=True)
    outputs, weights = zip(*(self_attention(x, *head) for head in slices), strict=True)
    concatenated = np.concatenate(outputs, axis=1).astype(dtype, copy=False)
    return concatenated, [head.astype(dtype, copy=False) for head in weights]


def _inputs(
    X: ArrayLike, Wq: ArrayLike, Wk: ArrayLike, Wv: ArrayLike, H: int
) -> tuple[list[NDArray[Any]], DTypeLike, int]:
    axes = {"X": "L E", "Wq": "E D", "Wk": "E D", "Wv": "E D"}
    arrays, dtype = real_arrays(axes, X=X, Wq=Wq, Wk=Wk, Wv=Wv)
    x, wq, wk, wv = arrays
    for name, matrix in (("Wq", wq), ("Wk", wk), ("Wv", wv)):
        require_size(name, matrix, 0, x.shape[1], "the width of `X`")
        H = require_heads("H", H, matrix.shape[1], f"the width of `{name}`")
    require_size("Wk", wk, 1, wq.shape[1], "the width of `Wq`")
    return arrays, dtype, H
