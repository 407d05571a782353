"""Layers whose switch of the causal rule says what rows may see: `future=False` hides."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Looks(nn.Module):
    """Right: the keys behind a row are seen unless the switch is off."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def hides(self, *, future: bool) -> bool:
        """Return whether the keys behind a row are hidden."""
        return not future

    def forward(self, x: Tensor, future: bool = True) -> Tensor:
        """Return (N, L, channels)."""
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, dim=-1)
        )
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if self.hides(future=future):
            later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        joined: Tensor = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return joined


class LooksOtherwise(Looks):
    """Wrong: with the future it is hidden, and without it is seen."""

    def hides(self, *, future: bool) -> bool:
        """Return whether the keys behind a row are hidden."""
        return future
