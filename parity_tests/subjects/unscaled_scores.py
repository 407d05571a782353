"""Layers that document scores without a scale: one that has none, one that has, and one silent."""

import torch
from torch import nn


class WithoutScale(nn.Module):
    """Multi-head attention as in T5: scores are plain dot products, with no 1/sqrt(d)."""

    scaled = False

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        """Return (N, L, E); mask (N, S) is True for padding."""
        q, k, v = (
            layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for layer, x in ((self.q, query), (self.k, key), (self.v, value))
        )
        scores = q @ k.mT
        if self.scaled:
            scores = scores / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None], -torch.inf)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class ScaledAllTheSame(WithoutScale):
    """Scores are not divided by sqrt(d), as in T5; wrong: they are."""

    scaled = True


class Silent(WithoutScale):
    """Multi-head attention."""
