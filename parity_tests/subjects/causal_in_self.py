"""Layers of encoder and decoder whose causal switch is refused with keys of their own."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class OfBoth(nn.Module):
    """Right: self-attention, causal on request, or attention to another input."""

    def __init__(self, n_heads: int, d_model: int, mask: bool) -> None:
        super().__init__()
        self.heads, self.mask = n_heads, mask
        self.w_q, self.w_k, self.w_v, self.o_proj = (nn.Linear(d_model, d_model) for _ in range(4))

    def first(self) -> int:
        """Return the first diagonal that is hidden."""
        return 1

    def forward(
        self, x: Tensor, cross_x: Tensor | None = None, padding_mask: Tensor | None = None
    ) -> Tensor:
        """Return (N, L, E); padding_mask (N, S) is True for real tokens."""
        if self.mask and cross_x is not None:
            raise AssertionError("masked attention to another input is not possible")
        keys = x if cross_x is None else cross_x
        rows = self.w_q(x), self.w_k(keys), self.w_v(keys)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in rows)
        scores = q @ k.mT * k.shape[-1] ** -0.5
        if self.mask:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(self.first())
            scores = scores.masked_fill(later, -torch.inf)
        if padding_mask is not None:
            scores = scores.masked_fill(~padding_mask[:, None, None], -torch.inf)
        joined: Tensor = self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return joined


class OfBothFromTheNext(OfBoth):
    """Wrong: with the rule each row sees the key behind its own."""

    def first(self) -> int:
        """Return the first diagonal that is hidden."""
        return 2
