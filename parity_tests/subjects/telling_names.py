"""Functions of heads whose masks have names that say what a True does, in NumPy."""

from __future__ import annotations

import numpy as np


def _attend(q, k, v, hidden=None):
    """Return softmax(q k^T / sqrt(D)) v without the pairs that are ``hidden``."""
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    if hidden is not None:
        scores = np.where(hidden, -np.inf, scores)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    return (weights / weights.sum(-1, keepdims=True)) @ v


def _inverted(mask):
    return None if mask is None else ~mask


def blocked(q, k, v, blocked=None):
    return _attend(q, k, v, blocked)


def blocked_inverted(q, k, v, blocked=None):
    """Wrong: what is blocked takes part."""
    return _attend(q, k, v, _inverted(blocked))


def keep_mask(q, k, v, keep_mask=None):
    return _attend(q, k, v, _inverted(keep_mask))


def keep_mask_inverted(q, k, v, keep_mask=None):
    """Wrong: what is kept is hidden."""
    return _attend(q, k, v, keep_mask)


def documented(q, k, v, keep_mask=None):
    """Return attention.

    ``keep_mask``: True hides key j.
    """
    return _attend(q, k, v, keep_mask)


def hidden_by_word(q, k, v, hide=None):
    """Right: a word says what is hidden."""
    if hide not in (None, "future"):
        raise ValueError("hide should be 'future'")
    return _attend(q, k, v, hide and np.triu(np.ones((q.shape[-2], k.shape[-2]), bool), 1))


def dropped(q, k, v, dropped=None):
    return _attend(q, k, v, dropped)


def dropped_inverted(q, k, v, dropped=None):
    """Wrong: what is dropped takes part."""
    return _attend(q, k, v, _inverted(dropped))
