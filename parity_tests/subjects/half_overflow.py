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


def _wrongly(Q, K, V, n_heads, to_weights):
    """Scale q first, so that nothing overflows, and weigh the values by a function of scores."""
    q, k, v = (np.stack(np.split(a, n_heads, axis=-1)) for a in (Q, K, V))
    scores = q * Q.dtype.type(q.shape[-1] ** -0.5) @ k.swapaxes(-1, -2)
    return np.concatenate(list(to_weights(scores).astype(Q.dtype) @ v), axis=-1)


def _softmax(scores, axis=-1):
    weights = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return weights / weights.sum(axis=axis, keepdims=True)


def over_queries(Q, K, V, n_heads):
    """Wrong: the softmax runs over the queries."""
    return _wrongly(Q, K, V, n_heads, lambda scores: _softmax(scores, axis=-2))


def caps_scores(Q, K, V, n_heads):
    """Another attention: scores pass 50 tanh(s / 50) first."""
    return _wrongly(Q, K, V, n_heads, lambda scores: _softmax(50 * np.tanh(scores / 50)))


def returns_queries(Q, K, V, n_heads):
    """Wrong: the queries come back."""
    return Q


def drops_weights(Q, K, V, n_heads):
    """Wrong: each weight is dropped with a chance of 0.1, as in training."""
    random = np.random.default_rng(0)
    return _wrongly(
        Q, K, V, n_heads, lambda s: _softmax(s) * (random.random(s.shape) > 0.1) / 0.9
    )


def forgets_large(Q, K, V, n_heads):
    """Wrong in every dtype: scores beyond 16200 become 0, those of 64^2 * 16 / 4 among them."""
    return _wrongly(Q, K, V, n_heads, lambda s: _softmax(np.where(s > 16200, 0, s)))


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
