"""Layers of torch as they stand in many a repository: a Linear for each of q, k, v and the output."""

from __future__ import annotations

import torch
from torch import nn


class Attention(nn.Module):
    """Queries, keys and values from outside; a mask of unknown meaning."""

    scaled = True

    def __init__(self, d_model, num_heads, dropout=0.0):
        super().__init__()
        self.num_heads = num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, q, k, v, mask=None):
        """Return (N, L, E)."""
        parts = zip((self.W_q, self.W_k, self.W_v), (q, k, v))
        q, k, v = (f(x).unflatten(-1, (self.num_heads, -1)).transpose(-2, -3) for f, x in parts)
        logits = q @ k.mT
        if self.scaled:
            logits = logits / q.shape[-1] ** 0.5
        if mask is not None:
            logits = logits.masked_fill(mask == 0, -1e9)
        weights = self.dropout(logits.softmax(dim=-1))
        return self.W_o((weights @ v).transpose(-2, -3).flatten(-2))


class Unscaled(Attention):
    """Wrong on purpose: the logits are not scaled."""

    scaled = False


class FirstValues(Attention):
    """Reads as many values as there are keys, and no more."""

    def forward(self, q, k, v, mask=None):
        """Return (N, L, E)."""
        return super().forward(q, k, v[:, : k.shape[1]], mask)


class SelfAttention(nn.Module):
    """Heads first in the constructor, one input, no biases, no output projection."""

    def __init__(self, n_heads, width):
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)

    def forward(self, x):
        """Return (N, L, E) and the weights of every head."""
        split = lambda rows: torch.stack(rows.chunk(self.n_heads, dim=-1), dim=1)  # noqa: E731
        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        weights = torch.softmax(q @ k.transpose(2, 3) / q.size(-1) ** 0.5, dim=-1)
        return torch.cat((weights @ v).unbind(dim=1), dim=-1), weights


class ZeroRows(Attention):
    """Right but for a demand: the heads of a query that sees no key are zeros."""

    def forward(self, q, k, v, mask=None):
        """Return (N, L, E)."""
        parts = zip((self.W_q, self.W_k, self.W_v), (q, k, v))
        q, k, v = (f(x).unflatten(-1, (self.num_heads, -1)).transpose(-2, -3) for f, x in parts)
        logits = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            logits = logits.masked_fill(mask == 0, -torch.inf)
        weights = logits.softmax(dim=-1).nan_to_num()
        return self.W_o((weights @ v).transpose(-2, -3).flatten(-2))
