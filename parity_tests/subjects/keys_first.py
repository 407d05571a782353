"""Masks whose keys come before the queries: right, against what is documented, and inverted."""

import numpy as np


def _attend(q, k, v, hidden):
    scores = k @ np.swapaxes(q, -1, -2) / np.sqrt(q.shape[-1])
    if hidden is not None:
        scores = np.where(hidden, -np.inf, scores)
    scores = np.exp(scores - scores.max(axis=-2, keepdims=True))
    return np.swapaxes(scores / scores.sum(axis=-2, keepdims=True), -1, -2) @ v


def by_context(q, k, v, blocked=None):
    """Return (N, H, L, D). blocked: (keys, queries), True where a key must not be seen."""
    return _attend(q, k, v, blocked)


def by_context_inverted(q, k, v, blocked=None):
    """Return (N, H, L, D). blocked: context first, True where a key must not be seen."""
    return _attend(q, k, v, None if blocked is None else ~blocked)


def against_its_word(q, k, v, mask=None):
    """Return (N, H, L, D). mask: (L, S), True where a key must not be seen."""
    return _attend(q, k, v, mask)


def undocumented(q, k, v, blocked=None):
    """Return (N, H, L, D). blocked: True where a key must not be seen."""
    return _attend(q, k, v, blocked)
