"""Kernels without a mask that hide the future by themselves, called as F.sdpa is."""

from __future__ import annotations

import numpy as np


def normal(scores):
    exp = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


def hidden_scores(query, key, scale):
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.swapaxes(-1, -2) * query.dtype.type(factor)
    rows, keys = np.indices(scores.shape[-2:])
    return np.where(keys > rows, -np.inf, scores), rows, keys


def causal(query, key, value, scale=None):
    """Right: causal."""
    return normal(hidden_scores(query, key, scale)[0]) @ value


def skips_blocks(query, key, value, scale=None):
    """Wrong: of the block of 16 keys of its own, a row sees the first 8 alone."""
    scores, rows, keys = hidden_scores(query, key, scale)
    return normal(np.where(keys > 16 * (rows // 16) + 7, -np.inf, scores)) @ value


def plain(query, key, value, scale=None):
    """Right: nothing is hidden."""
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    return normal(query @ key.swapaxes(-1, -2) * query.dtype.type(factor)) @ value


def forgets_last_key(query, key, value, scale=None):
    """Wrong: the last of several keys is left out."""
    seen = slice(max(key.shape[-2] - 1, 1))
    return plain(query, key[..., seen, :], value[..., seen, :], scale)
