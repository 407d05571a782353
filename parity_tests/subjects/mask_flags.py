"""Attentions whose mask is a flag: it switches the causal rule on, and has no default."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn


class Flagged(nn.Module):
    """Right: ``mask`` says whether the rows see no later keys."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.heads = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (
            nn.Linear(d_model, d_model, bias=False) for _ in range(4)
        )

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: bool) -> Tensor:
        """Return (N, L, E)."""
        rows = self.w_q(q), self.w_k(k), self.w_v(v)
        query, key, value = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in rows)
        scores = query @ key.mT * query.shape[-1] ** -0.5
        if mask:
            later = torch.ones_like(scores, dtype=torch.bool).triu(self.first())
            scores = scores.masked_fill(later, -torch.inf)
        joined: Tensor = self.w_o((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))
        return joined

    def first(self) -> int:
        """Return the first diagonal that is hidden."""
        return 1


class FlaggedFromTheNext(Flagged):
    """Wrong: each row sees the key behind its own."""

    def first(self) -> int:
        """Return the first diagonal that is hidden."""
        return 2


def flagged(q, k, v, mask):
    """Right: the same of NumPy's arrays, without weights."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    if mask:
        scores = np.where(np.triu(np.ones(scores.shape[-2:], bool), 1), -np.inf, scores)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v
