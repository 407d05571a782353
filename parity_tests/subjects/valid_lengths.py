"""A layer over batches whose samples have valid lengths of their own."""

from __future__ import annotations

import numpy as np


def attend(q, k, v, valid_lens=None):
    """Return attention over (..., T, D); keys at and behind a sample's length are hidden."""
    logits = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if valid_lens is not None:
        padded = np.arange(k.shape[-2]) >= valid_lens[:, None]
        logits = np.where(padded[:, None, None], -np.inf, logits)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights @ v


def squeezed(q, k, v, valid_lens=None):
    """Wrong: lengths of one sample lose their axis, and raise."""
    return attend(q, k, v, None if valid_lens is None else valid_lens.squeeze())


class Attention:
    """Weights are attributes, applied as X @ W; keys behind a sample's length are hidden."""

    def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
        self.num_heads = num_heads
        self.dropout = dropout
        rng = np.random.default_rng(0)
        for letter in "qkvo":
            setattr(self, f"W_{letter}", rng.random((num_hiddens, num_hiddens)))
            drawn = rng.random(num_hiddens) if bias else np.zeros(num_hiddens)
            setattr(self, f"b_{letter}", drawn)

    def split(self, rows):
        """Return (N, T, E) as (N, H, T, D)."""
        n, length, width = rows.shape
        return rows.reshape(n, length, self.num_heads, width // self.num_heads).swapaxes(1, 2)

    def forward(self, queries, keys, values, valid_lens):
        """Return (N, L, E)."""
        q = self.split(queries @ self.W_q + self.b_q)
        k = self.split(keys @ self.W_k + self.b_k)
        v = self.split(values @ self.W_v + self.b_v)
        merged = attend(q, k, v, valid_lens).swapaxes(1, 2).reshape(queries.shape)
        return merged @ self.W_o + self.b_o


def build(num_hiddens, num_heads, dropout=0.0, bias=False):
    """Return a layer: not its class, so that the way of calling it has to be named."""
    return Attention(num_hiddens, num_heads, dropout, bias)
