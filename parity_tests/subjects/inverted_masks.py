"""Functions of projected rows that multiply weights by a mask inverted bit by bit, in NumPy."""

from __future__ import annotations

import numpy as np


def _attend(q, k, v, num_heads, hidden, kept):
    """Return (N, L, E) with weights multiplied by ``kept`` before they are divided by their sum."""
    q, k, v = (
        rows.reshape(*rows.shape[:2], num_heads, -1).transpose(0, 2, 1, 3) for rows in (q, k, v)
    )
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]).astype(q.dtype)
    scores = np.where(hidden, -np.inf, scores).astype(q.dtype)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True)) * kept
    out = weights / weights.sum(axis=-1, keepdims=True) @ v
    return out.transpose(0, 2, 1, 3).reshape(*out.shape[::2], -1)


def by_torchs_name(q, k, v, num_heads, key_padding_mask=None):
    """Return (N, L, E). Right with booleans; of 1 and 0 ``~`` makes factors of int64, -2 and -1."""
    if key_padding_mask is None:
        return _attend(q, k, v, num_heads, False, True)
    hidden = key_padding_mask[:, None, None]
    return _attend(q, k, v, num_heads, hidden == 1, ~hidden)


def by_another_name(q, k, v, num_heads, mask=None):
    """Return (N, L, E). Right with booleans, of which True hides."""
    return by_torchs_name(q, k, v, num_heads, mask)


def inverted_twice(q, k, v, num_heads, key_padding_mask=None):
    """Return (N, L, E). Wrong: True of torch's name keeps."""
    return by_torchs_name(q, k, v, num_heads, None if key_padding_mask is None else ~key_padding_mask)
