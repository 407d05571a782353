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


def keys_reshaped(q, k, v):
    """Keys (S, D) are reshaped to (D, S) where they should be transposed."""
    return weights_of(q, k.reshape(*k.shape[:2], k.shape[3], k.shape[2]).swapaxes(-1, -2)) @ v


def keys_of_rows_reshaped(q, k, v):
    """Keys (S, H, D) are reshaped to (H, D, S)."""
    rows = k.transpose(0, 2, 1, 3).reshape(*k.shape[:2], k.shape[3], k.shape[2])
    return weights_of(q, rows.swapaxes(-1, -2)) @ v
