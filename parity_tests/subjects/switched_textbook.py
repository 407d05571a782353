"""Textbook classes of NumPy, one sequence at a time, whose call has a causal switch that is on."""

from __future__ import annotations

import numpy as np


def softmax(scores):
    """Return the softmax over the last axis."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


class MultiHeadAttention:
    """Right: rows see those before them unless it is switched off."""

    def __init__(self, dim, num_heads):
        self.dim, self.num_heads, self.head_dim = dim, num_heads, dim // num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = np.random.default_rng(0).normal(
            size=(4, dim, dim)
        )

    def first_hidden(self):
        """Return the first diagonal that is hidden."""
        return 1

    def forward(self, x, use_causal_mask=True):
        """Return (seq, dim)."""
        q, k, v = (
            (x @ w).reshape(len(x), self.num_heads, self.head_dim).transpose(1, 0, 2)
            for w in (self.W_q, self.W_k, self.W_v)
        )
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(self.head_dim)
        if use_causal_mask:
            scores = scores + np.triu(np.full((len(x), len(x)), -1e9), k=self.first_hidden())
        return (softmax(scores) @ v).transpose(1, 0, 2).reshape(len(x), self.dim) @ self.W_o


class SeesTheNext(MultiHeadAttention):
    """Wrong with the switch on: each row sees the one behind it."""

    def first_hidden(self):
        """Return the first diagonal that is hidden."""
        return 2
