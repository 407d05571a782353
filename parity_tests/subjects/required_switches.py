"""Layers that are built with a switch which has no default, and that their parts ask."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Head(nn.Module):
    """One head, with its cache where the switch is on."""

    axis = -1

    def __init__(self, width: int, head_size: int, use_cache: bool) -> None:
        super().__init__()
        self.key, self.query, self.value = (
            nn.Linear(width, head_size, bias=False) for _ in range(3)
        )
        self.use_cache = use_cache
        self.kept: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows of one head."""
        k, q, v = self.key(x), self.query(x), self.value(x)
        if self.use_cache:
            self.kept = k
            return self.of(q, self.kept, v, -1)
        return self.of(q, k, v, self.axis)

    def of(self, q: Tensor, k: Tensor, v: Tensor, axis: int) -> Tensor:
        """Return attention with the softmax along an axis."""
        found: Tensor = (q @ k.mT * k.shape[-1] ** -0.5).softmax(axis) @ v
        return found


class HeadAcrossSamples(Head):
    """One whose softmax runs over the samples without a cache."""

    axis = 0


class InHeads(nn.Module):
    """Right, with its cache and without."""

    def __init__(self, n_embd: int, num_heads: int, use_cache) -> None:
        super().__init__()
        size = n_embd // num_heads
        self.heads = nn.ModuleList(self.head(n_embd, size, use_cache) for _ in range(num_heads))
        self.proj = nn.Linear(n_embd, n_embd)

    def head(self, width: int, size: int, use_cache: bool) -> nn.Module:
        """Return one head."""
        return Head(width, size, use_cache)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, T, n_embd)."""
        joined: Tensor = self.proj(torch.cat([head(x) for head in self.heads], dim=-1))
        return joined


class InHeadsAcrossSamples(InHeads):
    """Wrong without the cache, right with it."""

    def head(self, width: int, size: int, use_cache: bool) -> nn.Module:
        """Return one head."""
        return HeadAcrossSamples(width, size, use_cache)


class Blended(nn.Module):
    """Attention where a switch of no known name is on, else the mean of the values."""

    def __init__(self, n_embd: int, num_heads: int, looking) -> None:
        super().__init__()
        self.heads, self.looking = num_heads, looking
        self.query, self.key, self.value, self.proj = (
            nn.Linear(n_embd, n_embd) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, T, n_embd)."""
        rows = self.query(x), self.key(x), self.value(x)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in rows)
        scores = q @ k.mT * k.shape[-1] ** -0.5
        if not self.looking:
            scores = torch.zeros_like(scores)
        joined: Tensor = self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return joined


class Masked(Blended):
    """Attention whose constructor is asked for a causal rule, without a default."""

    def __init__(self, n_embd: int, num_heads: int, mask: bool) -> None:
        super().__init__(n_embd, num_heads, looking=True)
        self.mask = mask

    def first(self) -> int:
        """Return the first diagonal that is hidden."""
        return 1

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, T, n_embd)."""
        rows = self.query(x), self.key(x), self.value(x)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in rows)
        scores = q @ k.mT * k.shape[-1] ** -0.5
        if self.mask:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(self.first())
            scores = scores.masked_fill(later, -torch.inf)
        joined: Tensor = self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return joined


class MaskedFromTheNext(Masked):
    """Wrong: with the rule each row sees the key behind its own."""

    def first(self) -> int:
        """Return the first diagonal that is hidden."""
        return 2
