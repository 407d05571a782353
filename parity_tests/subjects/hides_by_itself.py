"""Layers and functions of weights that hide the future by themselves."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn


def normal(scores):
    exp = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


def attend(q, k, v, heads, ahead, mask=None):
    """Return the heads side by side; a row sees ``ahead`` keys behind its own."""

    def split(rows):
        return rows.reshape(*rows.shape[:-1], heads, -1).swapaxes(-3, -2)

    scores = split(q) @ split(k).swapaxes(-1, -2) / np.sqrt(q.shape[-1] / heads)
    visible = np.tril(np.ones(scores.shape[-2:]), ahead) == 1
    if mask is not None:
        visible = visible & (mask != 0)
    weights = normal(np.where(visible, scores, -np.inf))
    return (weights @ split(v)).swapaxes(-3, -2).reshape(q.shape)


class Layer:
    """Right: causal, and what a mask hides besides is hidden."""

    ahead = 0

    def __init__(self, embed_size, num_heads):
        self.num_heads = num_heads
        self.Wq, self.Wk, self.Wv, self.Wo = np.random.randn(4, embed_size, embed_size)

    def forward(self, x, mask=None):
        q, k, v = x @ self.Wq, x @ self.Wk, x @ self.Wv
        return attend(q, k, v, self.num_heads, self.ahead, mask) @ self.Wo


class WithoutMask(Layer):
    """Right: causal."""

    def forward(self, x):
        return super().forward(x)


class SeesNext(WithoutMask):
    """Wrong: a row sees the key behind it."""

    ahead = 1


def function(x, w_q, w_k, w_v, num_heads):
    """Right: causal."""
    return attend(x @ w_q, x @ w_k, x @ w_v, num_heads, 0)


def sees_next(x, w_q, w_k, w_v, num_heads):
    """Wrong: a row sees the key behind it."""
    return attend(x @ w_q, x @ w_k, x @ w_v, num_heads, 1)


class OfRows(nn.Module):
    """Right: causal by a buffer, and a mask (L, S) hides besides; it is written into a copy."""

    keeps = False

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)
        future = torch.ones(2200, 2200, dtype=torch.bool).triu(1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, x, attn_mask=None):
        """Return (N, L, E)."""
        hidden = self.future[: x.shape[1], : x.shape[1]]
        if not self.keeps:
            hidden = hidden.clone()
        if attn_mask is not None:
            hidden |= attn_mask
        parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (p.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p in parts)
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(hidden, -torch.inf)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class KeptOfRows(OfRows):
    """Wrong: what a mask hides is written into the buffer, and stays hidden."""

    keeps = True
