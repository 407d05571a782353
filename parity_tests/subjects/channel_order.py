"""Heads that take every H-th channel: `view(N, L, D, H)` where torch has `view(N, L, H, D)`."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  (as everybody calls it)

from styles import attend, merge, split


def split_width_first(rows, heads):
    """Return (N, H, L, D) of (N, L, D H)."""
    n, length, width = rows.shape
    return rows.view(n, length, width // heads, heads).permute(0, 3, 1, 2)


def merge_width_first(heads):
    """Return (N, L, D H) of (N, H, L, D)."""
    n, _, length, _ = heads.shape
    return heads.permute(0, 2, 3, 1).reshape(n, length, -1)


class WidthFirst(nn.Module):
    """Splits and merges with the width before the head, between projections of its own."""

    split, merge = staticmethod(split_width_first), staticmethod(merge_width_first)
    factor = 1.0

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads = num_heads
        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_model) for _ in range(3))
        self.fc_out = nn.Linear(d_model, d_model)

    def forward(self, query, key, value):
        """Return (N, L, E)."""
        q = self.split(self.w_q(query) * self.factor, self.heads)
        k, v = self.split(self.w_k(key), self.heads), self.split(self.w_v(value), self.heads)
        return self.fc_out(self.merge(attend(q, k, v)))


class SplitWidthFirst(WidthFirst):
    """Merges as torch does."""

    merge = staticmethod(merge)


class MergeWidthFirst(WidthFirst):
    """Splits as torch does."""

    split = staticmethod(split)


class PackedWidthFirst(nn.Module):
    """Has one Linear of queries, keys and values."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads = num_heads
        self.qkv, self.proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split_width_first(each, self.heads) for each in self.qkv(x).chunk(3, -1))
        return self.proj(merge_width_first(attend(q, k, v)))


class WidthFirstTwice(WidthFirst):
    """Takes the queries twice as large."""

    factor = 2.0


class WidthFirstWithoutOutput(nn.Module):
    """Has no output projection that could take the channels back: they reach the caller so."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads = num_heads
        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, query, key, value):
        """Return (N, L, E)."""
        rows = self.w_q(query), self.w_k(key), self.w_v(value)
        return merge_width_first(attend(*(split_width_first(r, self.heads) for r in rows)))


class WidthFirstNamedAsTorchs(nn.Module):
    """Has the packed weight under the name that torch's layer gives it."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.heads = num_heads
        self.in_proj_weight = nn.Parameter(torch.randn(3 * embed_dim, embed_dim))
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=False)

    def forward(self, x):
        """Return (N, L, E)."""
        rows = F.linear(x, self.in_proj_weight).chunk(3, -1)
        heads = (split_width_first(each, self.heads) for each in rows)
        return self.out_proj(merge_width_first(attend(*heads)))


def width_first(q, k, v, n_heads):
    """Split rows of the caller's, who has them in torch's order."""
    return merge_width_first(attend(*(split_width_first(each, n_heads) for each in (q, k, v))))


def weights_width_first(x, w_q, w_k, w_v, w_o, n_heads):
    """Apply weights of the caller's, who has them in torch's order."""
    heads = (split_width_first(x @ w, n_heads) for w in (w_q, w_k, w_v))
    return merge_width_first(attend(*heads)) @ w_o


class MergesByName(nn.Module):
    """Makes the output projection first, and copies it for the three others."""

    def __init__(self, num_heads, d_model):
        super().__init__()
        self.heads = num_heads
        self.merge = nn.Linear(d_model, d_model)
        self.proj = nn.ModuleList([deepcopy(self.merge) for _ in range(3)])

    def forward(self, query, key, value):
        """Return (N, L, E)."""
        rows = zip(self.proj, (query, key, value), strict=True)
        return self.merge(merge(attend(*(split(f(each), self.heads) for f, each in rows))))
