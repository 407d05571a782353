"""Wrong on purpose, but for ``HiddenKeys``: a padding mask meets the rows of queries, not keys."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn


def normal(scores):
    exp = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


class HiddenKeys(nn.Module):
    """Right: hidden scores are a large negative number, padded keys alone are hidden."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, x, key_padding_mask=None):
        """Return (N, L, E)."""
        parts = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (f(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for f in parts)
        out = self.attend(q, k, v, key_padding_mask)
        return self.out_proj(out.transpose(1, 2).flatten(2))

    def attend(self, q, k, v, hidden):
        """Return the heads, (N, H, L, D)."""
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if hidden is not None:
            scores = scores.masked_fill(hidden[:, None, None], -1e9)
        return scores.softmax(dim=-1) @ v


class UniformRows(HiddenKeys):
    """Rows of padded queries get one finite number for all their scores."""

    def attend(self, q, k, v, hidden):
        """Return the heads, (N, H, L, D)."""
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if hidden is not None:
            scores = scores.masked_fill(hidden[:, None, :, None], -1e9)
        return scores.softmax(dim=-1) @ v


class SafeRows(HiddenKeys):
    """A softmax that gives 0 where a row sees nothing."""

    def attend(self, q, k, v, hidden):
        """Return the heads, (N, H, L, D)."""
        shape = (*q.shape[:-1], k.shape[-2])
        seen = None if hidden is None else ~hidden[:, None, :, None].expand(shape)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, seen)


class OutputRows(HiddenKeys):
    """No score is hidden: the output rows of padded queries are 0."""

    def forward(self, x, key_padding_mask=None):
        """Return (N, L, E)."""
        out = super().forward(x)
        return out if key_padding_mask is None else out * ~key_padding_mask[..., None]


def uniform_kernel(q, k, v, key_padding_mask=None, is_causal=False):
    """A function of (N, H, L, D): padded rows are uniform over the keys that are not future."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if key_padding_mask is not None:
        scores = np.where(key_padding_mask[:, None, :, None], -1e30, scores)
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    return normal(scores) @ v


class CausalPositions(HiddenKeys):
    """Right: one finite number where a key is of the future, or one of both positions is padded.

    Rows of padded queries are the mean of all values, those of the future too.
    """

    def attend(self, q, k, v, hidden):
        """Return the heads, (N, H, L, D)."""
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        if hidden is not None:
            seen = seen & ~hidden[:, None, None] & ~hidden[:, None, :, None]
        return scores.masked_fill(~seen, -1e9).softmax(dim=-1) @ v
