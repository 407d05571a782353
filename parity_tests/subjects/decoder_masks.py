"""Layers with a mask for their own tokens and one for further keys; layers with rows of masks."""

from __future__ import annotations

import torch
from torch import nn


class TwoMasks(nn.Module):
    """Each mask is added, that of the memory where there is one: the other is not read then."""

    factor = 1.0

    def __init__(self, hidden_size, num_attention_heads):
        super().__init__()
        self.heads = num_attention_heads
        self.query, self.key, self.value, self.dense = (
            nn.Linear(hidden_size, hidden_size) for _ in range(4)
        )

    def split(self, rows):
        """Return (N, H, L, D)."""
        return rows.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(
        self,
        hidden_states,
        attention_mask=None,
        encoder_hidden_states=None,
        encoder_attention_mask=None,
    ):
        """Return a tuple of one, (N, L, E); masks are added to scores (N, H, L, S)."""
        source = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        mask = attention_mask
        if encoder_hidden_states is not None and encoder_attention_mask is not None:
            mask = encoder_attention_mask * self.factor
        elif encoder_hidden_states is not None:
            mask = None
        q, k, v = (
            self.split(each)
            for each in (self.query(hidden_states), self.key(source), self.value(source))
        )
        scores = q @ k.mT * q.shape[-1] ** -0.5
        scores = scores if mask is None else scores + mask
        return (self.dense((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)),)


class TwoMasksHalved(TwoMasks):
    """Wrong on purpose: half of the mask of the memory is added."""

    factor = 0.5


class RowsOfMasks(nn.Module):
    """Right for batches: the mask (N, S) gets an axis of queries, at the place of (N, L, S)."""

    def __init__(self, embed_dim):
        super().__init__()
        self.query, self.key, self.value, self.proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, x, context=None, key_padding_mask=None):
        """Return (N, L, E); without an axis of samples the mask hides queries, where L = S."""
        context = x if context is None else context
        q, k, v = self.query(x), self.key(context), self.value(context)
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask.unsqueeze(1), -torch.inf)
        return self.proj(scores.softmax(-1) @ v)
