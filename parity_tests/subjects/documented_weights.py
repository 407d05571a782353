"""Layers of (L, N, E) that return weights with the axes that they document, and otherwise."""

from __future__ import annotations

import torch
from torch import nn


class HeadsFirst(nn.Module):
    """Takes (L, N, E) and returns (L, N, E) with weights (heads, batch, tgt_len, src_len)."""

    axes = (1, 0, 2, 3)
    factor = 1.0

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, query, key, value, key_padding_mask=None):
        """Attend to keys that the mask (N, S) does not hide."""
        linears = ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        q, k, v = (f(r).unflatten(-1, (self.num_heads, -1)).permute(1, 2, 0, 3) for f, r in linears)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask[:, None, None], -torch.inf)
        weights = scores.softmax(-1)
        output = self.out_proj((weights @ v).permute(2, 0, 1, 3).flatten(2))
        return output, (weights * self.factor).permute(self.axes)


class KeysFirst(HeadsFirst):
    """Takes (L, N, E) and returns weights of the shape [num_heads, N, S, L], one for each pair."""

    axes = (1, 0, 3, 2)


class HeadsFirstHalved(HeadsFirst):
    """Wrong on purpose: halves them. Its weights: (heads, batch, tgt_len, src_len)."""

    factor = 0.5


class KeysFirstUndocumented(HeadsFirst):
    """Wrong on purpose: weights are (heads, batch, tgt_len, src_len), it says."""

    axes = (1, 0, 3, 2)
