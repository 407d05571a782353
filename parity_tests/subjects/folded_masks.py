"""Layers with samples and heads in one axis, and a mask of all samples, or of each."""

import torch
from torch import nn

__all__ = ["Folded", "FoldedByHeads"]


class Folded(nn.Module):
    """Right, for rows (L, N, E).

    mask: floats that are added to the scaled scores; (L, S) for all, or (N, L, S) one per sample.
    """

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def fold(self, rows):
        """Return (N H, L, D)."""
        return rows.reshape(rows.shape[0], rows.shape[1] * self.num_heads, -1).transpose(0, 1)

    def of_heads(self, mask):
        """Return a mask of each sample for each of its heads."""
        return mask.repeat_interleave(self.num_heads, dim=0)

    def forward(self, query, key, value, mask=None):
        """Return (L, N, E)."""
        linears = zip((self.wq, self.wk, self.wv), (query, key, value), strict=True)
        q, k, v = (self.fold(linear(rows)) for linear, rows in linears)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores + (self.of_heads(mask) if mask.ndim == 3 else mask)
        rows = torch.softmax(scores, -1) @ v
        return self.wo(rows.transpose(0, 1).reshape(query.shape))


class FoldedByHeads(Folded):
    """Wrong: the masks are those of other samples.

    mask: floats that are added to the scaled scores; (L, S) for all, or (N, L, S) one per sample.
    """

    def of_heads(self, mask):
        """Return the masks of all samples, once for each head."""
        return mask.repeat(self.num_heads, 1, 1)
