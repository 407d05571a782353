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
