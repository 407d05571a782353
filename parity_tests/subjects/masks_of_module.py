"""Attention of a translation model.

1. Heads are split by one reshape.
2. Masking uses the convention `True = attend`, `False = suppress`, whatever
   the shape of the mask.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Right: True of its mask keeps."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.heads = num_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def hidden(self, mask: Tensor) -> Tensor:
        """Return what is hidden."""
        return ~mask

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None):
        """Return (B, L, D); the mask is broadcast to (B, H, L, S)."""
        rows = self.w_q(query), self.w_k(key), self.w_v(value)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in rows)
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(self.hidden(mask), -torch.inf)
        return self.w_o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Inverted(Attention):
    """Wrong: True of its mask hides."""

    def hidden(self, mask: Tensor) -> Tensor:
        """Return what is hidden."""
        return mask
