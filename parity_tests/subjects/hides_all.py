"""A layer in which every key is hidden."""

from __future__ import annotations

import torch
from torch import nn

from styles import merge, split


class HidesAll(nn.Module):
    """Wrong: each output is NaN."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv_proj = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.num_heads) for each in self.qkv_proj(x).chunk(3, -1))
        hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(hidden, -torch.inf)
        return self.out_proj(merge(scores.softmax(-1) @ v))
