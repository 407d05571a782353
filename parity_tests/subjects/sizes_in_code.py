"""Layers whose sizes are numbers in their code, or attributes of classes and keys of their module."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from torch import nn


class Attention(nn.Module):
    """Right: four heads of 16, as numbers of the code alone."""

    root = math.sqrt(16)

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (4, 16)).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = (q @ k.mT / self.root).softmax(-1)
        return self.out(self.merged(weights @ v))

    def merged(self, heads):
        return heads.transpose(1, 2).flatten(2)


class ScaledByAll(Attention):
    """Wrong: scores are divided by the root of the whole width."""

    root = math.sqrt(64)


class Unmoved(Attention):
    """Wrong: heads are merged without their axis being moved."""

    def merged(self, heads):
        return heads.reshape(heads.shape[0], heads.shape[2], 64)


class FixedHeads(nn.Module):
    """Right: of any width in eight heads, a number of the code. mask: True where a key is seen."""

    def __init__(self, embed_dim):
        super().__init__()
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def root(self, embed_dim):
        return math.sqrt(embed_dim // 8)

    def forward(self, x, mask=None):
        q, k, v = (each.unflatten(-1, (8, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT / self.root(x.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class FixedHeadsUnscaled(FixedHeads):
    """Wrong: scores are not divided."""

    def root(self, embed_dim):
        return 1


class OfNumpy:
    """Right: one head of 32, in NumPy."""

    width = 32

    def __init__(self):
        rng = np.random.default_rng(0)
        self.Wq, self.Wk, self.Wv = (rng.standard_normal((32, 32)) for _ in range(3))

    def forward(self, x):
        scores = (x @ self.Wq) @ np.swapaxes(x @ self.Wk, -1, -2) / self.width**0.5
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        return scores / scores.sum(-1, keepdims=True) @ (x @ self.Wv)


class OfNumpyTwice(OfNumpy):
    """Wrong: scores are divided by the width itself."""

    width = 32**2


class Sizes:
    d_model = 512
    n_heads = 8


@dataclass(frozen=True)
class Frozen:
    d_model: int = 512
    n_heads: int = 8


frozen = Frozen()
space = SimpleNamespace(d_model=512, n_heads=8)
table = {"d_model": 512, "n_heads": 8}


class OfClass(nn.Module):
    """Right: its sizes are attributes of a class."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(Sizes.d_model, 3 * Sizes.d_model)
        self.out = nn.Linear(Sizes.d_model, Sizes.d_model)

    def split(self, rows):
        return rows.unflatten(-1, (Sizes.n_heads, -1)).transpose(1, 2)

    def forward(self, x):
        q, k, v = map(self.split, self.qkv(x).chunk(3, -1))
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class OfFrozen(OfClass):
    """Right: of an object that may not be changed."""

    def __init__(self):
        nn.Module.__init__(self)
        self.qkv = nn.Linear(frozen.d_model, 3 * frozen.d_model)
        self.out = nn.Linear(frozen.d_model, frozen.d_model)

    def split(self, rows):
        return rows.unflatten(-1, (frozen.n_heads, -1)).transpose(1, 2)


class OfSpace(OfClass):
    """Right: of a namespace."""

    def __init__(self):
        nn.Module.__init__(self)
        self.qkv = nn.Linear(space.d_model, 3 * space.d_model)
        self.out = nn.Linear(space.d_model, space.d_model)

    def split(self, rows):
        return rows.unflatten(-1, (space.n_heads, -1)).transpose(1, 2)


class OfTable(OfClass):
    """Right: of a dictionary."""

    def __init__(self):
        nn.Module.__init__(self)
        self.qkv = nn.Linear(table["d_model"], 3 * table["d_model"])
        self.out = nn.Linear(table["d_model"], table["d_model"])

    def split(self, rows):
        return rows.unflatten(-1, (table["n_heads"], -1)).transpose(1, 2)


class OfTableUnscaled(OfTable):
    """Wrong: scores are not divided."""

    def forward(self, x):
        q, k, v = map(self.split, self.qkv(x).chunk(3, -1))
        return self.out(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))


HEADS = 8


class HeadsOfModule(FixedHeads):
    """Right: of any width, in as many heads as a number of its module says."""

    def forward(self, x, mask=None):
        q, k, v = (
            each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1)
        )
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


layer = Attention()
