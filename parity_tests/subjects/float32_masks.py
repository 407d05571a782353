"""Layers that give torch's function masks of float32 and of other dtypes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Float32Mask(nn.Module):
    """Causal self-attention whose mask is of float32, whatever the rows are."""

    def __init__(self, dim: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Attend from the rows of ``x``, (N, L, E), to those up to their own."""
        split = (each.unflatten(-1, (self.n_heads, -1)) for each in self.qkv(x).chunk(3, -1))
        q, k, v = (each.transpose(1, 2) for each in split)
        rows = x.shape[1]
        mask = torch.full((rows, rows), self.fill(rows), dtype=torch.float32).triu(1)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=self.cast(mask, q))
        return self.proj(attended.transpose(1, 2).flatten(2))

    def cast(self, mask: Tensor, query: Tensor) -> Tensor:
        """Return the mask as torch's function gets it."""
        return mask.to(query.dtype) if query.dtype in {torch.half, torch.bfloat16} else mask

    def fill(self, rows: int) -> float:
        """Return the number for hidden keys."""
        return -torch.inf


class DtypeOfQueries(Float32Mask):
    """Right: the mask has the dtype of the queries."""

    def cast(self, mask: Tensor, query: Tensor) -> Tensor:
        """Return the mask as torch's function gets it."""
        return mask.to(query.dtype)


class Float32MaskOfFewRows(Float32Mask):
    """Hides nothing of few rows, besides."""

    def fill(self, rows: int) -> float:
        """Return the number for hidden keys."""
        return 0.0 if rows < 9 else -torch.inf


class LongFloat64(DtypeOfQueries):
    """Wrong in float64 from 16 rows on, by a mask of the right dtype."""

    def cast(self, mask: Tensor, query: Tensor) -> Tensor:
        """Return the mask as torch's function gets it."""
        long = query.dtype == torch.float64 and query.shape[2] > 15
        return (torch.zeros_like(mask) if long else mask).to(query.dtype)
