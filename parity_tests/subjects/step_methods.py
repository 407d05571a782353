"""Causal layers with a method that takes one row more, and keeps those before it in the layer."""

from __future__ import annotations

import torch
from torch import nn


class Steps(nn.Module):
    """Right: `step` takes (N, E)."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)
        self.reset()

    def reset(self):
        self.keys = self.values = None

    def split(self, x):
        return (
            each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, -1)
        )

    def forward(self, x):
        q, k, v = self.split(x)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))

    def row(self, x):
        q, k, v = self.split(x)
        self.keys = k if self.keys is None else torch.cat([self.keys, k], 2)
        self.values = v if self.values is None else torch.cat([self.values, v], 2)
        weights = (q @ self.seen(self.keys).mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.out((weights @ self.seen(self.values)).transpose(1, 2).flatten(2))

    def seen(self, kept):
        return kept

    def step(self, x_t):
        return self.row(x_t[:, None])[:, 0]


class Decodes(Steps):
    """Right: `decode_one` takes (N, 1, E)."""

    step = None

    def decode_one(self, x):
        return self.row(x)


class InChunks(Steps):
    """Right: `step` takes any number of rows (N, n, E), behind those before them."""

    count_before = True

    def step(self, x):
        q, k, v = self.split(x)
        before = 0 if self.keys is None else self.keys.shape[2]
        self.keys = k if self.keys is None else torch.cat([self.keys, k], 2)
        self.values = v if self.values is None else torch.cat([self.values, v], 2)
        scores = q @ self.keys.mT / q.shape[-1] ** 0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + before)
        if not self.count_before and x.shape[1] > 1:
            hidden[:, :before] = torch.ones(hidden[:, :before].shape, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return self.out((weights @ self.values).transpose(1, 2).flatten(2))


class InChunksFromTheFirst(InChunks):
    """Wrong: several rows at once see of those before them as many as the first rows would."""

    count_before = False


class LastThree(Steps):
    """Wrong: a step sees the last three rows alone."""

    def seen(self, kept):
        return kept[:, :, -3:]


class KeepsValues(Steps):
    """Wrong: the second step sees the first value twice, and none of its own."""

    def seen(self, kept):
        return kept if kept is self.keys else torch.cat([kept[:, :, :1], kept[:, :, :-1]], 2)


class Other(Steps):
    """Right: its `step` is none of attention."""

    def step(self, x_t):
        return x_t


class Descends(Steps):
    """Right: its `step` is one of gradient descent."""

    def step(self, lr):
        for each in self.parameters():
            each.data -= lr * each.grad


class StepsAlone(nn.Module):
    """Right: `step` takes any number of rows, behind those of the calls since `reset`."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)
        self.reset()

    def reset(self):
        self.rows = None

    def scale(self, width):
        return width**0.5

    def step(self, x):
        self.rows = x if self.rows is None else torch.cat([self.rows, x], 1)
        q, k, v = (
            each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for each in self.qkv(self.rows).chunk(3, -1)
        )
        scores = q @ k.mT / self.scale(q.shape[-1])
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))[:, -x.shape[1] :]


class StepsAloneUnscaled(StepsAlone):
    """Wrong: its scores are not divided."""

    def scale(self, width):
        return 1


class FixedSizes(LastThree):
    """Wrong: its sizes are numbers of its code, and a step sees the last three rows alone."""

    def __init__(self):
        super().__init__(24, 3)
        self.out = nn.Linear(24, 24)


class StepsWithCache(Steps):
    """Right; its step takes a cache as well, and is no method of one row more."""

    def step(self, x, cache):
        q, k, v = self.split(x)
        k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        return self.out(((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)), (k, v)


class OfGivenCache(Steps):
    """Right: `step` takes (N, E) and a cache, which a method of the layer makes."""

    def empty_cache(self, batch_size, max_len, dtype=torch.float64):
        shape = (batch_size, self.num_heads, max_len, self.out.in_features // self.num_heads)
        return {"k": torch.zeros(shape, dtype=dtype), "v": torch.zeros(shape, dtype=dtype), "n": 0}

    def heads_of(self, q):
        return q

    def step(self, x_t, cache):
        q, k, v = self.split(x_t[:, None])
        n = cache["n"]
        keys, values = cache["k"].clone(), cache["v"].clone()
        keys[:, :, n], values[:, :, n] = k[:, :, 0], v[:, :, 0]
        seen = keys[:, :, : n + 1].to(q.dtype)
        weights = (self.heads_of(q) @ seen.mT / q.shape[-1] ** 0.5).softmax(-1)
        rows = (weights @ values[:, :, : n + 1].to(q.dtype)).transpose(1, 2).flatten(2)
        return self.out(rows)[:, 0], {"k": keys, "v": values, "n": n + 1}


class OfGivenCacheByOtherHeads(OfGivenCache):
    """Wrong: in a step each head asks with the query of the one before it."""

    def heads_of(self, q):
        return q.roll(1, 1)


class OfOptionalCache(Steps):
    """Right: `step` takes (N, 1, E), and None before the first row."""

    def step(self, x, past=None):
        q, k, v = self.split(x)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2)), (k, v)
