"""Layers around torch's, each with another order of axes in its documentation."""

from __future__ import annotations

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
