"""Attentions of a library that is not installed, whose names are imported by a star."""

from __future__ import annotations

import numpy as np
from absentkeras.layers import *  # noqa: F403


class Attention(Layer):  # noqa: F405
    """Is a layer of that library."""

    def __init__(self, heads):
        super().__init__()
        self.heads = heads

    def call(self, q, k, v):
        """Return what a function of the library makes of it."""
        return batch_dot(q, k, v)  # noqa: F405


def attention(q, k, v):
    """Call a function of that library."""
    return batch_dot(softmax(batch_dot(q, k)), v)  # noqa: F405


def of_numpy(q, k, v, n_heads):
    """Need nothing of it."""
    n, length, width = q.shape
    q, k, v = (a.reshape(n, -1, n_heads, width // n_heads).swapaxes(1, 2) for a in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(width // n_heads).astype(q.dtype)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ v).swapaxes(1, 2).reshape(n, length, width)
