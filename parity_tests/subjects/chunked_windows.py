"""Causal attentions cut in chunks of 32 queries, of which some rows see another run of keys."""

from __future__ import annotations

import torch
from torch import nn

from styles import split

CHUNK, WINDOW = 32, 8


class Chunked(nn.Module):
    """Wrong: a window of 8 keys before a row, but 7 before the first row of a chunk."""

    reach = WINDOW

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def first_key(self, start):
        """Return the first key of the chunk that starts with a row."""
        return max(0, start - self.reach + 1)

    def chunk(self, q, k, v, start):
        """Return the output of the rows from ``start`` on."""
        end, first = min(start + CHUNK, q.shape[2]), self.first_key(start)
        ago = torch.arange(start, end)[:, None] - torch.arange(first, end)
        scores = q[:, :, start:end] @ k[:, :, first:end].mT / q.shape[-1] ** 0.5
        hidden = (ago < 0) | (ago > self.reach)
        return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v[:, :, first:end]

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.heads) for each in self.qkv(x).chunk(3, -1))
        parts = [self.chunk(q, k, v, start) for start in range(0, x.shape[1], CHUNK)]
        return self.out(torch.cat(parts, dim=2).transpose(1, 2).flatten(2))


class FirstRowOfAChunk(Chunked):
    """Wrong: causal, but the first row of each chunk beyond the first does not see key 0."""

    reach = 10**6

    def first_key(self, start):
        """Return the first key."""
        return 0

    def chunk(self, q, k, v, start):
        """Return the output of the rows from ``start`` on."""
        found = super().chunk(q, k, v, start)
        if not start:
            return found
        scores = q[:, :, start : start + 1] @ k[:, :, 1 : start + 1].mT / q.shape[-1] ** 0.5
        own = scores.softmax(-1) @ v[:, :, 1 : start + 1]
        return torch.cat((own, found[:, :, 1:]), dim=2)
