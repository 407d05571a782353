"""Attentions in the dtype of their inputs, that scale before the product or after it."""

from __future__ import annotations

import numpy as np


def _attend(Q, K, V, n_heads, before, after):
    q, k, v = (np.stack(np.split(a, n_heads, axis=-1)) for a in (Q, K, V))
    root = Q.dtype.type(q.shape[-1] ** -0.5)
    with np.errstate(over="ignore", invalid="ignore"):
        scores = (q * root if before else q) @ k.swapaxes(-1, -2)
        scores = scores * root if after else scores
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = weights / weights.sum(axis=-1, keepdims=True)
    return np.concatenate(list(weights @ v), axis=-1)


def scales_scores(Q, K, V, n_heads):
    """Multiply q k^T by the scale, as every textbook does."""
    return _attend(Q, K, V, n_heads, before=False, after=True)


def scales_queries(Q, K, V, n_heads):
    """Multiply q by the scale first."""
    return _attend(Q, K, V, n_heads, before=True, after=False)


def replaces_nan(Q, K, V, n_heads):
    """Multiply q k^T by the scale, and put 0 where the overflow made NaN."""
    return np.nan_to_num(scales_scores(Q, K, V, n_heads), nan=0.0)


def divides_last(query, key, value, keys=None):
    """Divide exp(scores) V by the sum of exp, as tiled kernels do, of (N, H, L, D)."""
    key, value = key[:, :, :keys], value[:, :, :keys]
    scores = (query * query.dtype.type(query.shape[-1] ** -0.5)) @ key.swapaxes(-1, -2)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    with np.errstate(over="ignore", invalid="ignore"):
        return (powers @ value) / powers.sum(axis=-1, keepdims=True, dtype=query.dtype)


def forgets_later_keys(query, key, value):
    """Wrong: keys behind the 100th have no weight, which finite rows show."""
    return divides_last(query, key, value, 100)
