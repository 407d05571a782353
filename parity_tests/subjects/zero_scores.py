"""Kernels that take scores of exactly 0 for hidden ones, wrong but for ``by_place``."""

from __future__ import annotations

import torch
from torch import nn


def scores_of(q, k):
    return q @ k.mT * q.shape[-1] ** -0.5


def by_place(query, key, value, is_causal=False):
    """Right: the rule hides by places."""
    scores = scores_of(query, key)
    if is_causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -torch.inf)
    return scores.softmax(dim=-1) @ value


def of_future(query, key, value, is_causal=False):
    """Wrong under the causal rule: future scores are made 0, and each 0 is hidden."""
    scores = scores_of(query, key)
    if is_causal:
        scores = scores.tril()
        scores = scores.masked_fill(scores == 0, -torch.inf)
    return scores.softmax(dim=-1) @ value


def of_all(query, key, value, is_causal=False):
    """Wrong without a mask too."""
    scores = scores_of(query, key)
    scores = scores.tril() if is_causal else scores
    return scores.masked_fill(scores == 0, -torch.inf).softmax(dim=-1) @ value


class OfItself(nn.Module):
    """Wrong: a layer of self-attention that hides the future by its score, which is made 0."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        """Return (N, L, E)."""
        parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (p.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p in parts)
        return self.proj(of_future(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
