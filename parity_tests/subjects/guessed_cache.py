"""A layer whose cache nothing in its module says, beside a class that is called one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class CacheOfGradients:
    """Keeps no keys: what it returns of those that it gets is another thing."""

    def add(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return both twice, the values of the copies negative."""
        return torch.cat((k, k), dim=2), torch.cat((v, -v), dim=2)


class OfStrangers(nn.Module):
    """Right: takes a cache that its callers make."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )

    def forward(self, x: Tensor, cache: Any = None) -> Tensor:
        """Return the output."""
        q, k, v = (
            each(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for each in (self.q_proj, self.k_proj, self.v_proj)
        )
        if cache is not None:
            k, v = cache.add(k, v)
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        joined: Tensor = self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return joined
