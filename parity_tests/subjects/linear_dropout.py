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
