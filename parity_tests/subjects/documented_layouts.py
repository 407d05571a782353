"""Layers around torch's, and cores of heads, each with another order of axes documented."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


class _Around(nn.Module):
    batch_first = False

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, num_heads, batch_first=self.batch_first)

    def forward(self, x):
        """Attend."""
        return self.attention(x, x, x, need_weights=False)[0]


class SamplesFirst(_Around):
    """Self-attention of embeddings (batch, seq_len, d_model)."""

    batch_first = True


class SamplesSaidFirst(_Around):
    """Wrong on purpose: takes and returns (batch, seq_len, d_model), and attends over samples."""


class RowsFirst(_Around):
    """Self-attention of embeddings (seq_len, batch, d_model)."""


class EitherFirst(_Around):
    """Self-attention of (B, T, C), or of (T, B, C) as it is here."""


class Undocumented(_Around):
    """Self-attention."""


class _Core(nn.Module):
    def __init__(self, kv_channels):
        super().__init__()
        self.norm_factor = kv_channels**0.5

    def forward(self, query_layer, key_layer, value_layer, attention_mask=None):
        """Attend along the first axis."""
        q, k, v = (x.permute(1, 2, 0, 3) for x in (query_layer, key_layer, value_layer))
        scores = q @ k.transpose(-2, -1) / self.norm_factor
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask, -torch.inf)
        return (scores.softmax(dim=-1) @ v).permute(2, 0, 1, 3).flatten(2)


class HeadsOfRows(_Core):
    """Of [sq, b, np, hn], as Megatron has them, it makes [sq, b, np * hn]."""


class HeadsOfSamples(_Core):
    """Wrong on purpose: takes (batch, seq, heads, dim), and attends over samples."""


class HeadsBeforeRows(_Core):
    """Wrong on purpose: takes (B, H, T, D), and attends over samples."""


def heads_of_rows(q, k, v):
    """Of arrays of NumPy, query and key (L, N, H, D), it makes (L, N, H, D)."""
    scores = np.einsum("lnhd,snhd->nhls", q, k) / np.asarray(q.shape[-1] ** 0.5, q.dtype)
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("nhls,snhd->lnhd", odds / odds.sum(axis=-1, keepdims=True), v)
