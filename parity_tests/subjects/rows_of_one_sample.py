"""Functions of one sample, (L, H, D), of packed documents, of windows; and rows in slices."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


def attend(query, key, value, scale, hidden=None):
    """Return softmax(q k^T scale) v of arrays (L, H, D)."""
    scores = np.einsum("lhd,shd->hls", query * scale, key)
    if hidden is not None:
        scores = np.where(hidden, -np.inf, scores)
    exp = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hls,shd->lhd", exp / exp.sum(-1, keepdims=True), value)


def one_sample(query, key, value, mask=None):
    """Right: query (L, H, D), key and value (S, H, D), mask (L, S), True keeps."""
    return attend(query, key, value, query.shape[-1] ** -0.5, None if mask is None else ~mask)


def one_sample_by_heads(query, key, value, mask=None):
    """Wrong: the scores are divided by the root of the number of heads."""
    return attend(query, key, value, query.shape[-2] ** -0.5, None if mask is None else ~mask)


def documents(q, k, v, doc_ids):
    """Right: (T, H, D); tokens with equal ids (T,) belong together."""
    unlike = doc_ids[:, None] != doc_ids[None, :]
    return attend(q, k, v, q.shape[-1] ** -0.5, unlike)


def documents_unscaled(q, k, v, doc_ids):
    """Wrong: no scale."""
    return attend(q, k, v, 1.0, doc_ids[:, None] != doc_ids[None, :])


def windowed(q, k, v, window):
    """Right: (T, H, D); row i sees the keys j with i - window < j <= i."""
    behind = np.arange(len(q))[:, None] - np.arange(len(k))
    return attend(q, k, v, q.shape[-1] ** -0.5, (behind < 0) | (behind >= window))


def windowed_loosely(q, k, v, window):
    """Wrong: one key of the future is seen."""
    behind = np.arange(len(q))[:, None] - np.arange(len(k))
    return attend(q, k, v, q.shape[-1] ** -0.5, (behind < -1) | (behind >= window))


class Sliced(nn.Module):
    """Wrong: queries in slices of 64 are stacked, which raises where the last one is shorter."""

    slice_size = 64

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def joined(self, slices):
        """Return (N, H, L, D)."""
        return slices[0] if len(slices) == 1 else torch.stack(slices, 2).flatten(2, 3)

    def forward(self, query, key, value):
        parts = zip((self.q_proj, self.k_proj, self.v_proj), (query, key, value), strict=True)
        q, k, v = (p(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p, x in parts)
        slices = [
            (part @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1) @ v
            for part in q.split(self.slice_size, dim=2)
        ]
        return self.out_proj(self.joined(slices).transpose(1, 2).flatten(2))


class SlicedRight(Sliced):
    """Right: slices are joined along the rows."""

    def joined(self, slices):
        return torch.cat(slices, 2)


class SlicedAsDocumented(Sliced):
    """Right: past 64 queries, their length L is a multiple of 64."""


class SlicedRefusing(Sliced):
    """Right: it refuses other lengths."""

    def joined(self, slices):
        if len({each.shape[2] for each in slices}) > 1:
            raise RuntimeError("slices are of one length")
        return super().joined(slices)


class Bounded(Sliced):
    """Right: a buffer of 64 rows is added, beyond which every length raises."""

    def joined(self, slices):
        return torch.cat(slices, 2) + torch.zeros(64)[: sum(s.shape[2] for s in slices), None]


class TwoPads(nn.Module):
    """Right: `ctx_pad` (N, S) hides keys, and `x_pad` (N, L) sets rows of queries to zero."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.kv, self.out = (nn.Linear(dim, n * dim) for n in (1, 2, 1))

    def forward(self, x, ctx, x_pad=None, ctx_pad=None):
        """Return (N, L, E); x_pad (N, L), ctx_pad (N, S): optional bool, True = padding."""
        q = self.q(x).unflatten(-1, (self.heads, -1))
        k, v = self.kv(ctx).unflatten(-1, (2, self.heads, -1)).unbind(2)
        scores = torch.einsum("nlhd,nshd->nhls", q, k) / q.shape[-1] ** 0.5
        weights = self.hidden(scores, ctx_pad).softmax(-1)
        if x_pad is not None:
            weights = weights * ~x_pad[:, None, :, None]
        return self.out(torch.einsum("nhls,nshd->nlhd", weights, v).flatten(2))

    def hidden(self, scores, pad):
        return scores if pad is None else scores.masked_fill(pad[:, None, None], -torch.inf)


class MaskOfQueries(TwoPads):
    """Right likewise: what its documentation says of True is said of queries."""

    def forward(self, x, ctx, query_mask=None, ctx_pad=None):
        """Return (N, L, E).

        query_mask: bool, True = padding.
        """
        return super().forward(x, ctx, query_mask, ctx_pad)


class TwoPadsInverted(TwoPads):
    """Wrong: the padding of keys is kept, and all else is hidden."""

    def hidden(self, scores, pad):
        return scores if pad is None else scores.masked_fill(~pad[:, None, None], -torch.inf)
