"""Functions of (N, H, L, D) with an axis in another order, wrong but for ``both_reversed``."""

from __future__ import annotations

import numpy as np


def weights_of(q, k):
    _, _, _, width = q.shape
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(width)
    exp = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


def both_reversed(q, k, v):
    """Right: keys and values are reversed together."""
    return weights_of(q, k[:, :, ::-1]) @ v[:, :, ::-1]


def values_reversed(q, k, v):
    """Values come in reverse order."""
    return weights_of(q, k) @ v[:, :, ::-1]


def values_rolled(q, k, v):
    """Value j stands at j + 2."""
    return weights_of(q, k) @ np.roll(v, 2, axis=2)


def rows_reversed(q, k, v):
    """The rows of the output come in reverse order."""
    return (weights_of(q, k) @ v)[:, :, ::-1]


def scaled_and_reversed(q, k, v):
    """Not the right weights in any order."""
    return weights_of(2 * q, k) @ v[:, :, ::-1]


def with_next_samples_key(q, k, v):
    """Each sample sees the first key of the next one beside its own."""
    k, v = (np.concatenate([x, np.roll(x, -1, axis=0)[:, :, :1]], axis=2) for x in (k, v))
    return weights_of(q, k) @ v


def with_next_samples_keys(q, k, v):
    """Each sample sees all keys of the next one beside its own."""
    k, v = (np.concatenate([x, np.roll(x, -1, axis=0)], axis=2) for x in (k, v))
    return weights_of(q, k) @ v
