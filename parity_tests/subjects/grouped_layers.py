"""Layers with fewer key heads that are built already: each query head has its group's."""

from __future__ import annotations

import torch
from torch import nn

from styles import merge, split


class Grouped(nn.Module):
    """Linears of queries, keys, values and the output; keys and values have fewer heads."""

    tiled = False
    reversed_heads = False

    def __init__(self, embed_dim, num_heads, num_kv_heads):
        super().__init__()
        head_dim = embed_dim // num_heads
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, num_kv_heads * head_dim)
        self.v_proj = nn.Linear(embed_dim, num_kv_heads * head_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def repeated(self, rows):
        """Return keys or values with one head for each of the queries."""
        times = self.num_heads // self.num_kv_heads
        if self.tiled:
            return rows.repeat(1, times, 1, 1)
        return rows.repeat_interleave(times, dim=1)

    def forward(self, x):
        """Return (N, L, E)."""
        q = split(self.q_proj(x), self.num_heads)
        k, v = (split(each(x), self.num_kv_heads) for each in (self.k_proj, self.v_proj))
        k = k.flip(1) if self.reversed_heads else k
        weights = (q @ self.repeated(k).mT * q.shape[-1] ** -0.5).softmax(-1)
        return self.out_proj(merge(weights @ self.repeated(v)))


class NeverRepeats(Grouped):
    """One key head for each query head, or one alone: no product of others has a shape."""

    def repeated(self, rows):
        """Return keys or values as they are."""
        return rows


class Packed(Grouped):
    """One Linear of queries, keys and values, of unlike numbers of heads."""

    def __init__(self, embed_dim, num_heads, num_kv_heads):
        super().__init__(embed_dim, num_heads, num_kv_heads)
        del self.q_proj, self.k_proj, self.v_proj
        kv_width = num_kv_heads * embed_dim // num_heads
        self.widths = [embed_dim, kv_width, kv_width]
        self.qkv_proj = nn.Linear(embed_dim, sum(self.widths))

    def forward(self, x):
        """Return (N, L, E)."""
        counts = (self.num_heads, self.num_kv_heads, self.num_kv_heads)
        parts = zip(self.qkv_proj(x).split(self.widths, -1), counts, strict=True)
        q, k, v = (split(rows, count) for rows, count in parts)
        weights = (q @ self.repeated(k).mT * q.shape[-1] ** -0.5).softmax(-1)
        return self.out_proj(merge(weights @ self.repeated(v)))


torch.manual_seed(3)
packed = Packed(24, 4, 2)
two_of_four = Grouped(24, 4, 2).double()
one_of_six = Grouped(18, 6, 1).double()
as_many = Grouped(24, 4, 4).double()
tiled = Grouped(24, 4, 2).double()
tiled.tiled = True
flipped = Grouped(24, 4, 4).double()
flipped.reversed_heads = True
