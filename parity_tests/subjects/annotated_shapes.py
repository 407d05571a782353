"""Layers whose annotations have the axes of a mask as words, as jaxtyping writes them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Bool:
    """The annotation of a boolean array and its axes."""

    def __class_getitem__(cls, shape):
        """Return the array that is annotated."""
        return shape[0]


class OfKeys(nn.Module):
    """Right: the mask is (N, S), as its annotation says."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.out = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)

    def of_scores(self, mask: Tensor) -> Tensor:
        """Return the mask as it is broadcast to (N, H, L, S)."""
        return mask[:, None, None]

    def forward(self, x: Tensor, attn_mask: Bool[Tensor, "batch seq"] | None = None) -> Tensor:
        """Return (batch, seq, embed_dim)."""
        q, k, v = (
            each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, dim=-1)
        )
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if attn_mask is not None:
            scores = scores.masked_fill(self.of_scores(attn_mask), -torch.inf)
        joined: Tensor = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return joined


class OfRows(OfKeys):
    """Wrong: the mask is broadcast as (L, S) is, which it has the shape of where N = L."""

    def of_scores(self, mask: Tensor) -> Tensor:
        """Return the mask as it is broadcast to (N, H, L, S)."""
        return mask
