"""Attentions that take the number of each row's segment."""

import torch
from torch import nn

__all__ = [
    "Packed",
    "PackedOneLate",
    "SeesNeighbours",
    "Segmented",
    "by_order",
    "by_segment",
    "causal_by_segment",
    "of_both",
]


def _attend(q, k, v, hidden):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v


def by_segment(q, k, v, segment_ids=None):
    """Attend over (N, H, L, D) within segments (N, L): right."""
    if segment_ids is None:
        return _attend(q, k, v, torch.zeros(q.shape[2], k.shape[2], dtype=torch.bool))
    return _attend(q, k, v, (segment_ids[:, :, None] != segment_ids[:, None])[:, None])


def of_both(q, k, v, q_segment_ids=None, kv_segment_ids=None):
    """Attend over (N, H, L, D) to keys whose numbers are those of the queries: right."""
    if q_segment_ids is None or kv_segment_ids is None:
        return by_segment(q, k, v)
    return _attend(q, k, v, (q_segment_ids[:, :, None] != kv_segment_ids[:, None])[:, None])


def causal_by_segment(q, k, v, segment_ids, *, causal=True):
    """Attend over (N, H, L, D) within segments (N, L), causal unless it is said: right."""
    hidden = segment_ids[:, None, :, None] != segment_ids[:, None, None]
    if causal:
        hidden = hidden | torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1)
    return _attend(q, k, v, hidden)


def by_order(q, k, v, segment_ids=None):
    """Attend over (N, H, L, D) to segments of no larger numbers: wrong."""
    if segment_ids is None:
        return by_segment(q, k, v)
    return _attend(q, k, v, (segment_ids[:, :, None] < segment_ids[:, None])[:, None])


class Segmented(nn.Module):
    """Right: a causal layer of packed sequences."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.out = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)

    def unlike(self, ids):
        """Return which pairs of rows are of several segments, (N, L, L)."""
        return ids[:, :, None] != ids[:, None]

    def forward(self, x, doc_ids=None):
        """Return (N, L, E); doc_ids (N, L)."""
        split = (each.unflatten(-1, (self.num_heads, -1)) for each in self.qkv(x).chunk(3, -1))
        q, k, v = (each.transpose(1, 2) for each in split)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        if doc_ids is not None:
            hidden = hidden | self.unlike(doc_ids)[:, None]
        return self.out(_attend(q, k, v, hidden).transpose(1, 2).flatten(2))


class SeesNeighbours(Segmented):
    """Wrong: rows see the segments next to their own, too."""

    def unlike(self, ids):
        """Return which pairs of rows are of segments that are no neighbours."""
        return (ids[:, :, None] - ids[:, None]).abs() > 1


class Packed(nn.Module):
    """Right: of rows (L, E); `cu_seqlens` has where sequences begin, and the last one ends."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def segments(self, cu_seqlens, length):
        return torch.searchsorted(cu_seqlens[1:].contiguous(), torch.arange(length), right=True)

    def forward(self, x, cu_seqlens):
        length, _ = x.shape
        q, k, v = (
            each.unflatten(-1, (self.num_heads, -1)).transpose(0, 1)
            for each in self.qkv(x).chunk(3, -1)
        )
        own = self.segments(cu_seqlens.long(), length)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores.masked_fill(own[:, None] != own, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(0, 1).flatten(1))


class PackedOneLate(Packed):
    """Wrong: the first row of a sequence belongs to the one before it."""

    def segments(self, cu_seqlens, length):
        return torch.searchsorted(cu_seqlens[1:].contiguous(), torch.arange(length))
