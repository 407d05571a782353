"""Causal layers that read the heads and the longest sequence of their module in each call."""

from __future__ import annotations

import torch
from torch import nn

n_head = 12
block_size = 32


class Keeps(nn.Module):
    """Right: rows are kept behind those before them, in room for `block_size`, until a reset."""

    def __init__(self, n_embd):
        super().__init__()
        self.register_buffer("seen", torch.ones(block_size, block_size, dtype=torch.bool).tril())
        self.qkv = nn.Linear(n_embd, 3 * n_embd)
        self.proj = nn.Linear(n_embd, n_embd)
        self.reset_cache()

    def reset_cache(self):
        self.keys = self.values = None
        self.count = 0

    def kept(self, k, v):
        if self.keys is None:
            room = (k.shape[0], k.shape[1], block_size, k.shape[3])
            self.keys, self.values = k.new_zeros(room), v.new_zeros(room)
        last = self.count + k.shape[2]
        self.keys[:, :, self.count : last], self.values[:, :, self.count : last] = k, v
        self.count = last
        return self.keys[:, :, :last], self.values[:, :, :last]

    def split(self, x):
        rows = (each.unflatten(-1, (n_head, -1)) for each in self.qkv(x).chunk(3, -1))
        return (each.transpose(1, 2) for each in rows)

    def attended(self, q, k, v):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        seen = self.seen[k.shape[2] - q.shape[2] : k.shape[2], : k.shape[2]]
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))

    def forward(self, x):
        q, k, v = self.split(x)
        return self.attended(q, *self.kept(k, v))


class KeepsNone(Keeps):
    """Right: each call is one of its own, and a row more is what `step` takes."""

    def forward(self, x):
        return self.attended(*self.split(x))

    def step(self, x):
        q, k, v = self.split(x)
        return self.attended(q, *self.kept(k, v))


class StepsUnscaled(KeepsNone):
    """Wrong: a step does not scale."""

    def step(self, x):
        q, k, v = self.split(x)
        return self.attended(q * q.shape[-1] ** 0.5, *self.kept(k, v))


class KeepsItsLastLength(KeepsNone):
    """Wrong: evaluated after training, it scales by the length that it was trained at."""

    trained_at = None

    def forward(self, x):
        q, k, v = self.split(x)
        if self.training:
            self.trained_at = x.shape[1]
        elif self.trained_at is not None:
            q = q * (x.shape[1] / self.trained_at)
        return self.attended(q, k, v)
