"""Scaled dot-product attention with masks and dropout, for samples and heads at once.

    scores = scale * q k^T + M        P = softmax(scores) over the keys        heads_out = P v

The first of four pages that say what the layer computes: `attention`, `projections`, `multihead`,
`module`; `textbook.plain` is the formula alone. This is the plain engine: all scores of all heads
are held at once. `engines.flash` computes the same function by tiles that fit the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy.masks import NO_MASK, Masking
from mha_numpy.softmax import exponential, row_sums, sums_are_safe

if TYPE_CHECKING:
    from mha_numpy.dtypes import Array

RUN = 512  # keys in one product of weights and values


def attend(
    q: Array,
    k: Array,
    v: Array,
    masking: Masking = NO_MASK,
    scale: float = 1.0,
    *,
    need_weights: bool = True,
    average_weights: bool = False,
    kept: Array | None = None,
    empty_rows_are_zero: bool = False,
) -> tuple[Array, Array | None]:
    """Return (heads_out, weights) of softmax(scale * q k^T + M) v.

    q (N, H, L, D), k (N, Hkv, S, D) and v (N, Hkv, S, Dv) are all float32 or all float64. Hkv
    divides H, and query head h reads key head h // (H // Hkv). `kept` (N, H, L, S) are the factors
    of dropout, see `draw_kept`.

    heads_out (N, H, L, Dv) lies in memory as (N, L, H, Dv), so that merging the heads copies
    nothing. weights (N, H, L, S) are those after dropout, or (N, L, S), their mean over the heads,
    where `average_weights`; None unless `need_weights`. A row that sees no key is NaN in both, as
    in torch's softmax, or 0 where `empty_rows_are_zero`; without keys heads_out is 0, as in torch.
    """
    n, heads, queries, _ = q.shape
    merged = np.empty((n, queries, heads, v.shape[3]), q.dtype)
    heads_out = merged.transpose(0, 2, 1, 3)
    if not merged.size or not k.shape[2]:
        merged[...] = 0
        shape = (n, queries) if average_weights else (n, heads, queries)
        no_weights = np.zeros((*shape, k.shape[2]), q.dtype)
        return heads_out, no_weights if need_weights else None
    exp, unit = exponential(q.dtype, masking)  # exp2 of scores * log2(e), where that is faster
    # First without the shift that textbooks make, by each row's maximum: it costs two passes. Where
    # exp overflowed or underflowed, which the sums show, once more with it.
    for shifted in (False, True):
        weights = masked_scores(q, k, masking, scale, unit)
        if shifted:
            subtract_maxima(weights, empty_rows_are_zero=empty_rows_are_zero)
        exp(weights, out=weights)
        sums = row_sums(weights, float64_sums=need_weights)
        if shifted and empty_rows_are_zero:
            np.maximum(sums, np.finfo(sums.dtype).tiny, out=sums)
        if kept is not None:
            weights *= kept
        mixed = apply_weights(weights, v)
        if shifted or sums_are_safe(sums, mixed):
            break
    np.divide(mixed, sums, out=heads_out)  # after the product with v: fewer numbers than weights
    if not need_weights:
        return heads_out, None
    if average_weights:
        return heads_out, mean_weights(weights, sums)
    weights /= sums
    return heads_out, weights


def masked_scores(q: Array, k: Array, masking: Masking, scale: float, unit: float) -> Array:
    """Return scale * q k^T + M, (N, H, L, S), times the unit of `softmax.exponential`.

    The scale goes onto the queries: fewer numbers than the scores, and no overflow on the way.
    """
    scores = multiply_heads(q * (scale * unit), k.mT)
    if not masking.is_empty:
        scores += masking.additive(q.shape[2], k.shape[2], scores.dtype, unit)
    return scores


def subtract_maxima(scores: Array, *, empty_rows_are_zero: bool) -> None:
    """Subtract each row's maximum in place: exp is then at most 1, and 1 at least once.

    The maximum of a row of -inf makes it NaN; the least finite number instead leaves it -inf.
    """
    maxima = np.maximum.reduce(scores, axis=-1, keepdims=True)
    if empty_rows_are_zero:
        np.maximum(maxima, np.finfo(scores.dtype).min, out=maxima)
    np.subtract(scores, maxima, out=scores)


def apply_weights(weights: Array, v: Array) -> Array:
    """Return weights @ v, (N, H, L, Dv), summed over runs of keys.

    A product of few rows may be one running sum over all keys, whose rounding errors grow with
    their number: those of a run are smaller.
    """
    if v.shape[2] <= RUN:
        return multiply_heads(weights, v)
    mixed = multiply_heads(weights[..., :RUN], v[:, :, :RUN])
    for start in range(RUN, v.shape[2], RUN):
        run = slice(start, start + RUN)
        mixed += multiply_heads(weights[..., run], v[:, :, run])
    return mixed


def mean_weights(exponentials: Array, sums: Array) -> Array:
    """Return the mean over the heads of exponentials / sums, (N, L, S): a product for each query.

    Its factors are 1 / (H * sums): a third of the time of a division and a sum over the heads.
    """
    factors = 1 / (sums * exponentials.shape[1])
    mean: Array = factors.transpose(0, 2, 3, 1) @ exponentials.swapaxes(1, 2)
    return mean[:, :, 0]


def multiply_heads(rows: Array, columns: Array) -> Array:
    """Return rows (N, H, L, .) @ columns (N, Hkv, ., .), each query head with its key head's."""
    key_heads = columns.shape[1]
    if rows.shape[1] == key_heads:
        return rows @ columns
    return (by_key_head(rows, key_heads) @ columns).reshape(*rows.shape[:3], columns.shape[3])


def by_key_head(array: Array, key_heads: int) -> Array:
    """Return (N, H, L, .) as (N, Hkv, H / Hkv * L, .): the rows of all heads that share a key."""
    n, heads, queries, width = array.shape
    if heads == key_heads:
        return array
    return array.reshape(n, key_heads, heads // key_heads * queries, width)


def draw_kept(
    shape: tuple[int, ...], p: float, rng: np.random.Generator | None, dtype: np.dtype[Any]
) -> Array | None:
    """Return the factors of dropout: 0 with probability p, else 1 / (1 - p); None where p is 0."""
    if not p:
        return None
    if p >= 1:
        return np.zeros(shape, dtype)
    if rng is None:
        raise ValueError("dropout draws from a generator, but `rng` is None; pass one.")
    return (rng.random(shape, dtype=np.float32) >= p).astype(dtype) / (1 - p)
