"""Layers around an attention of torch, and layers whose configuration says little."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn


class Around(nn.Module):
    """Square Linears before and behind: factors of the projections."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.query = nn.Linear(embed_dim, embed_dim)
        self.key = nn.Linear(embed_dim, embed_dim)
        self.value = nn.Linear(embed_dim, embed_dim)
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, y):
        """Return (N, L, E)."""
        return self.proj(self.attn(self.query(x), self.key(y), self.value(y))[0])


class AroundCrossed(Around):
    """Wrong: keys come through the Linear of the queries."""

    def forward(self, x, y):
        """Return (N, L, E)."""
        return self.proj(self.attn(self.query(x), self.query(y), self.value(y))[0])


class AroundActivated(Around):
    """The Linears are no factors: their rows are bent."""

    def forward(self, x, y):
        """Return (N, L, E)."""
        q, k, v = self.query(x).relu(), self.key(y), self.value(y)
        return self.proj(self.attn(q, k, v)[0])


class TwelveHeads(nn.Module):
    """A number of heads that its configuration does not set."""

    def __init__(self, cfg):
        super().__init__()
        self.q_proj = nn.Linear(cfg["dim"], cfg["dim"])
        self.k_proj = nn.Linear(cfg["dim"], cfg["dim"])
        self.v_proj = nn.Linear(cfg["dim"], cfg["dim"])
        self.n_heads = 12

    def forward(self, x):
        """Return (N, L, E)."""
        projected = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        q, k, v = (t.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for t in projected)
        weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
        return (weights @ v).transpose(1, 2).flatten(2)


@dataclass
class Config:
    """What a model is built by."""

    d_model: int = 32
    head_dim: int = 8
    num_heads: int = 4


class OneHeadOfAConfig(nn.Module):
    """One of the heads that its configuration counts, with weights by other names."""

    def __init__(self, config: Config):
        super().__init__()
        self.query_gen = nn.Linear(config.d_model, config.head_dim)
        self.key_gen = nn.Linear(config.d_model, config.head_dim)
        self.value_gen = nn.Linear(config.d_model, config.head_dim)

    def forward(self, x):
        """Return (N, L, D)."""
        q, k, v = self.query_gen(x), self.key_gen(x), self.value_gen(x)
        return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v


class OneHeadUnscaled(OneHeadOfAConfig):
    """Wrong: without scale."""

    def forward(self, x):
        """Return (N, L, D)."""
        q, k, v = self.query_gen(x), self.key_gen(x), self.value_gen(x)
        return torch.softmax(q @ k.mT, -1) @ v


class KeysOfAWidth(nn.Module):
    """Built with the widths of queries and of keys, which are no widths of a head."""

    def __init__(self, query_dim, key_dim, num_heads):
        super().__init__()
        self.heads = num_heads
        self.query_gen = nn.Linear(query_dim, query_dim)
        self.key_gen = nn.Linear(key_dim, query_dim)
        self.value_gen = nn.Linear(key_dim, query_dim)
        self.merge = nn.Linear(query_dim, query_dim)

    def mixed(self, query, key):
        """Return the heads side by side."""
        rows = self.query_gen(query), self.key_gen(key), self.value_gen(key)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in rows)
        weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
        return (weights @ v).transpose(1, 2).flatten(2)

    def forward(self, query, key):
        """Return (N, L, E)."""
        return self.merge(self.mixed(query, key))


class OutputUnapplied(KeysOfAWidth):
    """Wrong: the output projection is made and not applied."""

    def forward(self, query, key):
        """Return (N, L, E)."""
        return self.mixed(query, key)


class TwoStreams(nn.Module):
    """Two attentions, of which each has queries of its own."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.first = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)
        self.second = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)

    def forward(self, x, y):
        """Return both outputs, (N, L, E) and (N, S, E)."""
        return self.first(x, y, y)[0], self.second(y, x, x)[0]
