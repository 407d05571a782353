"""Copies of torch's layer that take masks of floats in some dtypes alone."""

from __future__ import annotations

import torch
from torch import nn

TAKEN = (torch.float64, torch.float32, torch.float16, torch.bool)


class NoShortMasks(nn.MultiheadAttention):
    """Right: refuses a mask in bfloat16, as releases of torch before it did."""

    factor = 1

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None):
        """Return torch's output and weights."""
        if attn_mask is not None and attn_mask.dtype not in TAKEN:
            raise TypeError(f"masks of {attn_mask.dtype} are not supported")
        output, weights = super().forward(
            query, key, value, key_padding_mask=key_padding_mask, need_weights=need_weights,
            attn_mask=attn_mask,
        )  # fmt: skip
        return output * self.factor, weights


class NoShortMasksDoubled(NoShortMasks):
    """Wrong: its output is twice as large."""

    factor = 2


class FilledOrAdded(nn.Module):
    """Right: booleans, of which False hides, are filled with -1e9; floats are added."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)

    def forward(self, x, mask=None):
        """Return (N, L, E) for a mask (N, 1, L, L) or what broadcasts to it."""
        parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (p.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p in parts)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, -1e9)
        elif mask is not None:
            scores = scores + mask
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class OffsetInFloat32(nn.Module):
    """Right: what it adds to scores for a mask is float32, so that bfloat16 raises with it alone."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)

    def forward(self, x, bias=None, mask=None):
        """Return (N, L, E); the bias is added, and 0 of the mask (N, L) hides."""
        parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (p.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p in parts)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        scores = scores if bias is None else scores + bias
        if mask is not None:
            scores = scores + (mask == 0)[:, None, None] * -1e8
        weights = scores.softmax(-1)
        mixed = weights @ v.to(weights.dtype)
        return self.proj(mixed.transpose(1, 2).flatten(2))
