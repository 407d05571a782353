"""Layers with torch's name for a mask, whose documentation says what it hides."""

from __future__ import annotations

import torch
from torch import nn


class _Layer(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def attend(self, query, key, value, hidden):
        """Return (N, L, E) where some keys are hidden."""
        q, k, v = (
            linear(rows).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear, rows in ((self.query, query), (self.key, key), (self.value, value))
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        return self.proj((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


class ZeroHides(_Layer):
    """Right: what the call documents, the opposite of torch's meaning."""

    def forward(self, query, key, value, attn_mask=None):
        """Return the attention.

        - query: rows (N, L, E)
        - attn_mask: array of shape (L, S), in which mask[i, j] == 0 says that query i should not
          be influenced by key j.
        - unused: True hides nothing here, it is another entry.
        """
        return self.attend(query, key, value, None if attn_mask is None else attn_mask == 0)


class ZeroHidesInverted(_Layer):
    """Wrong: documented as ZeroHides, and hides where the mask is 1, as torch's would."""

    def forward(self, query, key, value, attn_mask=None):
        """Return the attention.

        - attn_mask: array of shape (L, S), in which mask[i, j] == 0 says that query i should not
          be influenced by key j.
        """
        return self.attend(query, key, value, None if attn_mask is None else attn_mask != 0)


class ZeroHidesUnsaid(_Layer):
    """Wrong: torch's name, the opposite meaning, and a documentation without a word of it."""

    def forward(self, query, key, value, attn_mask=None):
        """Return the attention.

        - attn_mask: array of shape (L, S).
        """
        return self.attend(query, key, value, None if attn_mask is None else attn_mask == 0)
