"""Layers of torch with a Linear each, and dropout in several places, as people have it."""

from __future__ import annotations

from linear_layers import Attention
from torch import nn


class OfOutputToo(Attention):
    """Drops of the output as well, as many a block does: another layer than torch's, and no bug."""

    def __init__(self, d_model, num_heads, dropout=0.0):
        super().__init__(d_model, num_heads, dropout)
        self.behind = nn.Dropout(dropout)

    def forward(self, q, k, v, mask=None):
        """Return (N, L, E)."""
        return self.behind(super().forward(q, k, v, mask))


class OfProjectionByDefault(nn.Module):
    """Right: drops behind the projection by a default, and by a name that ends like a weight's."""

    def __init__(self, dim, n_heads=8, attn_p=0.5, proj_p=0.5):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)
        self.attn_drop, self.proj_drop = nn.Dropout(attn_p), nn.Dropout(proj_p)

    def forward(self, x):
        """Return (N, L, E)."""
        n, tokens, dim = x.shape
        qkv = self.qkv(x).reshape(n, tokens, 3, self.n_heads, dim // self.n_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        weights = self.attn_drop((q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1))
        out = (weights @ v).transpose(1, 2).reshape(n, tokens, dim)
        return self.proj_drop(self.proj(out))


class OnlyKeeps(Attention):
    """Multiplies with 0 and 1: nothing makes up for what was dropped."""

    def __init__(self, d_model, num_heads, attn_drop=0.0):
        super().__init__(d_model, num_heads)
        self.dropout = _Mask(attn_drop)


class _Mask(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, weights):
        return weights * (weights.new_empty(weights.shape).uniform_() >= self.p * self.training)
