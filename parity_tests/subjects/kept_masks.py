"""Layers that keep the causal mask of an earlier call."""

from __future__ import annotations

import torch
from torch import nn


class KeptByLength(nn.Module):
    """Right: the mask (L, L) is made anew for another length, and serves all samples."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.out_proj = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)
        self.later = None

    def like(self, scores):
        """Return what the mask is made in the shape of."""
        return scores[0, 0]

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (
            rows.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for rows in self.qkv(x).chunk(3, dim=-1)
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if self.later is None or self.later.shape[-1] != scores.shape[-1]:
            self.later = torch.ones_like(self.like(scores), dtype=torch.bool).triu(1)
        weights = scores.masked_fill(self.later, -torch.inf).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


class KeptByLengthOfAll(KeptByLength):
    """Wrong: the mask has the samples of the first call, and another number of them raises."""

    def like(self, scores):
        """Return the scores of all samples."""
        return scores


class LastRows(nn.Module):
    """Right: queries are the last L of S rows, and see those up to their own."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )
        self.seen = None

    def rows_seen(self, queries, keys):
        """Return (L, S), True where a row is seen."""
        if self.seen is None or self.seen.shape != (queries, keys):
            self.seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        return self.seen

    def forward(self, query, context=None):
        """Return (N, L, E)."""
        context = query if context is None else context
        q, k, v = (
            linear(rows).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear, rows in ((self.q_proj, query), (self.k_proj, context), (self.v_proj, context))
        )
        hidden = ~self.rows_seen(q.shape[2], k.shape[2])
        weights = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


class LastRowsOfTheLargest(LastRows):
    """Wrong: a part of the largest mask so far has the place of its last row, not of this call's."""

    def rows_seen(self, queries, keys):
        """Return (L, S), True where a row is seen."""
        if self.seen is None or self.seen.shape[0] < queries or self.seen.shape[1] < keys:
            self.seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        return self.seen[:queries, :keys]
