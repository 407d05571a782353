"""Attentions that require a module of dropout in their call."""

import math

import torch
from torch import nn


def attention(query, key, value, dropout: nn.Dropout, mask=None):
    """Return softmax(q k^T / sqrt(D)) v of (N, H, L, D), and the weights; 0 in the mask hides."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = dropout(torch.softmax(scores, dim=-1))
    return weights @ value, weights


def unscaled(query, key, value, dropout: "nn.Dropout", mask=None):
    """Return the same without the scale."""
    return attention(query * math.sqrt(query.shape[-1]), key, value, dropout, mask)


class ByDefault(nn.Module):
    """A layer whose dropout is a module by default: no number replaces it."""

    factor = 1

    def __init__(self, dim, heads=8, dim_head=64, dropout=nn.Dropout(0.0)):
        super().__init__()
        self.heads = heads
        self.scale = self.factor * dim_head**-0.5
        self.to_qkv = nn.Linear(dim, 3 * heads * dim_head, bias=False)
        self.to_out = nn.Sequential(nn.Linear(heads * dim_head, dim), dropout)

    def forward(self, x):
        """Return (N, L, E)."""
        parts = self.to_qkv(x).chunk(3, dim=-1)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        weights = (q @ k.mT * self.scale).softmax(dim=-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))


class ByDefaultDoubled(ByDefault):
    """The same with twice the scale."""

    factor = 2
