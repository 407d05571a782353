"""Layers that are built with an attention of the same file."""

import math

import torch
from torch import nn

from styles import split


class ScaledDotAttention(nn.Module):
    """Takes (N, L, H, D), and returns such rows and the weights."""

    def __init__(self, mask_flag=True, scale=None, attention_dropout=0.1):
        super().__init__()
        self.mask_flag, self.scale = mask_flag, scale
        self.dropout = nn.Dropout(attention_dropout)

    def forward(self, queries, keys, values, attn_mask):
        """Return (N, L, H, D) and (N, H, L, S); ``attn_mask`` hides where it is True.

        Without one the future is hidden.
        """
        scale = self.scale or 1 / math.sqrt(queries.shape[-1])
        scores = torch.einsum("nlhd,nshd->nhls", queries, keys) * scale
        if attn_mask is None and self.mask_flag:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        if attn_mask is not None:
            scores = scores.masked_fill(attn_mask, -math.inf)
        weights = self.dropout(scores.softmax(-1))
        return torch.einsum("nhls,nshd->nlhd", weights, values), weights


class Layer(nn.Module):
    """Is built with an attention; the width of a head follows from both sizes."""

    def __init__(self, attention, d_model, n_heads, d_keys=None):
        super().__init__()
        d_keys = d_keys or d_model // n_heads
        self.inner_attention, self.n_heads = attention, n_heads
        rows = n_heads * d_keys
        self.query_projection, self.key_projection, self.value_projection = (
            nn.Linear(d_model, rows) for _ in range(3)
        )
        self.out_projection = nn.Linear(rows, d_model)

    def forward(self, queries, keys, values, attn_mask):
        """Return (N, L, E) and the weights."""
        rows = (self.query_projection, queries), (self.key_projection, keys)
        q, k, v = (
            split(f(x), self.n_heads).transpose(1, 2)
            for f, x in (*rows, (self.value_projection, values))
        )
        out, weights = self.inner_attention(q, k, v, attn_mask)
        return self.out_projection(out.flatten(2)), weights


class CrossedLayer(Layer):
    """Wrong: queries and keys change places."""

    def forward(self, queries, keys, values, attn_mask):
        """Return (N, L, E) and the weights."""
        rows = (self.key_projection, queries), (self.query_projection, keys)
        q, k, v = (
            split(f(x), self.n_heads).transpose(1, 2)
            for f, x in (*rows, (self.value_projection, values))
        )
        out, weights = self.inner_attention(q, k, v, attn_mask)
        return self.out_projection(out.flatten(2)), weights
