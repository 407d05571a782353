"""Grouped attention whose query head h reads the key head h % kv_heads.

Its softmax is always computed in float32, whatever the dtype of the queries.
"""

import torch
from torch import nn


def attention(q, k, v):
    """Right, as the module says: q is (N, H, L, D), k and v are (N, Hkv, S, D)."""
    k, v = (torch.cat([each] * (q.shape[1] // each.shape[1]), 1) for each in (k, v))
    scores = (q @ k.mT / q.shape[-1] ** 0.5).float()
    return scores.softmax(-1).to(q.dtype) @ v


def unscaled(q, k, v):
    """Wrong: it does not scale."""
    return attention(q * q.shape[-1] ** 0.5, k, v)


class Striped(nn.Module):
    """Right, as the module says."""

    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads
        width = dim // heads * kv_heads
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(dim, size, bias=False) for size in (dim, width, width, dim)
        )

    def read(self, rows):
        return torch.cat([rows] * (self.heads // self.kv_heads), 1)

    def forward(self, x):
        q = self.wq(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (
            self.read(w(x).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2))
            for w in (self.wk, self.wv)
        )
        return self.wo(attention(q, k, v).transpose(1, 2).flatten(2))


class Reversed(Striped):
    """Wrong: neither in the order of the module nor in torch's."""

    def read(self, rows):
        return super().read(rows).flip(1)
