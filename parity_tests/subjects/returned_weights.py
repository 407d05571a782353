"""A layer that returns its weights, and one that recomputes them without one of its masks."""

from __future__ import annotations

import torch
from torch import nn

from styles import split


class ReturnsWhatItUses(nn.Module):
    """Right: both masks hide in the output and in the weights. attn_mask: bool (L, S), True hides."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.heads = num_heads
        self.q, self.k, self.v, self.out = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def shown(self, weights, scores, attn_mask):
        """Return the weights that are returned."""
        return weights

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None):
        """Return (N, L, E) and weights (N, H, L, S)."""
        rows = ((self.q, query), (self.k, key), (self.v, value))
        q, k, v = (split(p(x), self.heads) for p, x in rows)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        hidden = torch.zeros_like(scores, dtype=torch.bool)
        if key_padding_mask is not None:
            hidden = hidden | key_padding_mask[:, None, None]
        if attn_mask is not None:
            hidden = hidden | attn_mask.expand(scores.shape[-2:])
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        found = self.out((weights @ v).transpose(1, 2).flatten(2))
        return found, self.shown(weights, scores, attn_mask)


class ReturnsWithoutPadding(ReturnsWhatItUses):
    """Wrong: beside an attn_mask, the returned weights know no padding."""

    def shown(self, weights, scores, attn_mask):
        """Return the weights that are returned."""
        if attn_mask is None:
            return weights
        return scores.masked_fill(attn_mask, -torch.inf).softmax(-1)


class ReturnsZeroed(ReturnsWhatItUses):
    """Wrong: the returned weights are those without masks, and 0 where they hide."""

    def shown(self, weights, scores, attn_mask):
        """Return the weights that are returned."""
        return scores.softmax(-1) * (weights > 0)


class BareByHead(nn.Module):
    """Right: bare parameters with axes of parts, heads and inputs, and a bias with one more."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        width = embed_dim // num_heads
        self.w_in = nn.Parameter(torch.zeros(3, num_heads, embed_dim, width))
        self.b_in = nn.Parameter(torch.zeros(3, num_heads, 1, width))

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = x[None, :, None] @ self.w_in[:, None] + self.b_in[:, None]
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2)
