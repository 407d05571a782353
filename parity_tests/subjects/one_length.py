"""Layers with inputs of their own for keys and values that answer as many keys as queries alone."""

from __future__ import annotations

import torch
from torch import nn


class OneLength(nn.Module):
    """Keys and values are split into heads by the length of the queries."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def _heads(self, query, key, value):
        shape = (*query.shape[:2], self.num_heads, -1)
        projected = (self.q_proj(query), self.k_proj(key), self.v_proj(value))
        return (each.reshape(shape).transpose(1, 2) for each in projected)

    def _scores(self, q, k):
        return q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5

    def forward(self, query, key, value):
        """Return (N, L, E)."""
        q, k, v = self._heads(query, key, value)
        mixed = self._scores(q, k).softmax(-1) @ v
        return self.out_proj(mixed.transpose(1, 2).flatten(2))


class Causal(OneLength):
    """It hides the future by itself, by a square mask."""

    def _scores(self, q, k):
        hidden = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
        return super()._scores(q, k).masked_fill(hidden, -torch.inf)


class KeysForQueries(OneLength):
    """Wrong on purpose: queries and keys are exchanged, which self-attention does not show."""

    def forward(self, query, key, value):
        """Return (N, L, E)."""
        return super().forward(key, query, value)


class FirstSampleAlone(OneLength):
    """Wrong on purpose: where there are two heads or more, all samples get the first one's keys."""

    def forward(self, query, key, value):
        """Return (N, L, E)."""
        if self.num_heads > 2:
            key = key[:1].expand_as(key)
        return super().forward(query, key, value)


class QueriesForValues(OneLength):
    """Wrong on purpose: the values are projected from the queries, and have no other length."""

    def _heads(self, query, key, value):
        return super()._heads(query, key, query)
