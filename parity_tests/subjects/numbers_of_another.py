"""Layers whose sizes are numbers of a module that theirs imports."""

import math

import own_numbers as c
import torch
from torch import nn


class Head(nn.Module):
    """One head, causal."""

    def __init__(self, head_size):
        super().__init__()
        self.query, self.key, self.value = (
            nn.Linear(c.n_embd, head_size, bias=False) for _ in range(3)
        )
        self.register_buffer("tril", torch.tril(torch.ones(c.block_size, c.block_size)))

    def scale(self, k):
        """Return what the scores are multiplied by."""
        return 1 / math.sqrt(k.shape[-1])

    def forward(self, x):
        """Return (N, L, head_size)."""
        q, k, v = self.query(x), self.key(x), self.value(x)
        scores = q @ k.mT * self.scale(k)
        length = x.shape[1]
        scores = scores.masked_fill(self.tril[:length, :length] == 0, float("-inf"))
        return scores.softmax(-1) @ v


class OfAnother(nn.Module):
    """Right: the width is a number of another module."""

    def __init__(self, num_heads):
        super().__init__()
        size = c.n_embd // num_heads
        self.heads = nn.ModuleList([Head(size) for _ in range(num_heads)])
        self.proj = nn.Linear(c.n_embd, c.n_embd)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x):
        """Return (N, L, E)."""
        return self.dropout(self.proj(torch.cat([head(x) for head in self.heads], dim=-1)))


class HeadOfWholeWidth(Head):
    """Wrong: the scale is that of all heads."""

    def scale(self, k):
        """Return what the scores are multiplied by."""
        del k
        return 1 / math.sqrt(c.n_embd)


class OfAnotherScaled(OfAnother):
    """Wrong: its heads are."""

    def __init__(self, num_heads):
        super().__init__(num_heads)
        size = c.n_embd // num_heads
        self.heads = nn.ModuleList([HeadOfWholeWidth(size) for _ in range(num_heads)])
