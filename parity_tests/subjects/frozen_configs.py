"""Layers of a frozen dataclass, with sizes, a scale and a mask of pairs that are None by default."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Config:
    """Sizes, and a factor of the scores in place of 1 / sqrt(D)."""

    width: int = 32
    n_heads: int = 4
    softmax_scale: float | None = None


class Pairs(nn.Module):
    """Right: `drop_pairs` is True where a query may not see a key."""

    transposed = False

    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        self.query = nn.Linear(cfg.width, cfg.width)
        self.key = nn.Linear(cfg.width, cfg.width)
        self.value = nn.Linear(cfg.width, cfg.width)
        self.dense = nn.Linear(cfg.width, cfg.width)

    def forward(self, hidden, context, drop_pairs=None):
        heads = self.cfg.n_heads
        q, k, v = (
            each.unflatten(-1, (heads, -1)).transpose(1, 2)
            for each in (self.query(hidden), self.key(context), self.value(context))
        )
        scores = q @ k.transpose(-2, -1) * (self.cfg.softmax_scale or q.shape[-1] ** -0.5)
        if drop_pairs is not None:
            hidden_pairs = drop_pairs.mT if self.transposed else drop_pairs
            scores = scores.masked_fill(hidden_pairs, float("-inf"))
        return self.dense((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))


class PairsTransposed(Pairs):
    """Wrong: the pairs are read as (S, L)."""

    transposed = True


@dataclass(frozen=True)
class Causal(Config):
    """Whether keys behind a query are hidden."""

    causal: bool = False


class Switched(nn.Module):
    """Right: causal where its configuration says so."""

    hidden_from = 1

    def __init__(self, cfg: Causal):
        super().__init__()
        self.cfg = cfg
        self.query = nn.Linear(cfg.width, cfg.width)
        self.key = nn.Linear(cfg.width, cfg.width)
        self.value = nn.Linear(cfg.width, cfg.width)
        self.dense = nn.Linear(cfg.width, cfg.width)

    def forward(self, x):
        q, k, v = (
            each(x).unflatten(-1, (self.cfg.n_heads, -1)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if self.cfg.causal:
            hidden = torch.ones_like(scores, dtype=torch.bool).triu(self.hidden_from)
            scores = scores.masked_fill(hidden, float("-inf"))
        return self.dense((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))


class SwitchedLoosely(Switched):
    """Wrong: one key behind a query is seen."""

    hidden_from = 2
