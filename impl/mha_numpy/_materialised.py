"""The core that holds the attention weights: one problem's heads, all at once.

    logits = scale * q k^T + masks        P = softmax over the keys        heads_out = P v

Every other way through this package computes the same function; this one also returns P.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy._masking import NO_MASK, Masking
from mha_numpy._softmax import is_bounded, softmax_inplace

if TYPE_CHECKING:
    from numpy.typing import NDArray


def attend(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    masking: Masking = NO_MASK,
    scale: float = 1.0,
    *,
    dropout_p: float = 0.0,
    rng: np.random.Generator | None = None,
    empty_rows_are_zero: bool = False,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return (heads_out, weights) of softmax(scale * q k^T + masks) v.

    q (N, H, L, D), k (N, Hkv, S, D), v (N, Hkv, S, Dv), one floating dtype (float32 or float64);
    Hkv divides H and query head h reads key head h // (H // Hkv).
    Returns heads_out (N, H, L, Dv), laid out in memory as (N, L, H, Dv) so that merging the heads
    costs nothing, and weights (N, H, L, S), after dropout where there is one.

    A row that sees no key is NaN in both, as torch's softmax makes it, or 0 in both where
    `empty_rows_are_zero`. Without any key (S = 0) the result is 0 in any case, as in torch.
    """
    weights = weigh(q, k, masking, scale, empty_rows_are_zero=empty_rows_are_zero)
    if dropout_p:
        drop_inplace(weights, dropout_p, rng)
    return mix(weights, v), weights


def weigh(
    q: NDArray[Any],
    k: NDArray[Any],
    masking: Masking,
    scale: float,
    *,
    empty_rows_are_zero: bool,
) -> NDArray[Any]:
    """Return softmax(scale * q k^T + masks), (N, H, L, S); see `attend`."""
    logits = scaled_logits(q, k, scale)
    bounded = not masking.bias and is_bounded(logits)
    if not masking.is_empty:
        logits += masking.additive(q.shape[2], k.shape[2], logits.dtype)
    return softmax_inplace(logits, empty_rows_are_zero=empty_rows_are_zero, bounded=bounded)


def scaled_logits(q: NDArray[Any], k: NDArray[Any], scale: float) -> NDArray[Any]:
    """Return scale * q k^T, (N, H, L, S), a new array.

    The scale goes onto the queries: fewer numbers than the logits, and no overflow on the way.
    """
    n, heads, queries, _ = q.shape
    _, kv_heads, keys, _ = k.shape
    scaled = q * scale
    if kv_heads == heads:
        logits: NDArray[Any] = scaled @ k.swapaxes(2, 3)
        return logits
    grouped = scaled.reshape(n, kv_heads, heads // kv_heads, queries, -1)
    logits = grouped @ k[:, :, None].swapaxes(3, 4)
    return logits.reshape(n, heads, queries, keys)


def drop_inplace(weights: NDArray[Any], p: float, rng: np.random.Generator | None) -> None:
    """Zero each weight with probability p and divide the others by 1 - p."""
    if p >= 1:
        weights[...] = 0
        return
    if rng is None:
        raise ValueError("dropout draws from a generator, but `rng` is None; pass one.")
    kept = rng.random(weights.shape, dtype=np.float32) >= p
    weights *= kept
    weights /= 1 - p


def mix(weights: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
    """Return weights @ v as (N, H, L, Dv) over memory laid out as (N, L, H, Dv)."""
    n, heads, queries, keys = weights.shape
    _, kv_heads, _, width = v.shape
    merged = np.empty((n, queries, heads, width), weights.dtype)
    out = merged.transpose(0, 2, 1, 3)
    if kv_heads == heads:
        np.matmul(weights, v, out=out)
    else:
        group = heads // kv_heads
        np.matmul(
            weights.reshape(n, kv_heads, group, queries, keys),
            v[:, :, None],
            out=out.reshape(n, kv_heads, group, queries, width),
        )
    return out
