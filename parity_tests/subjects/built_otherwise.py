"""Layers built in ways that hid their weights, their lengths or their sizes."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from styles import attend, merge, split

n_embed = 48


class Head(nn.Module):
    """One head, with three Linears."""

    def __init__(self, vec_len, head_size):
        super().__init__()
        self.query_network = nn.Linear(vec_len, head_size)
        self.key_network = nn.Linear(vec_len, head_size)
        self.value_network = nn.Linear(vec_len, head_size)

    def forward(self, x):
        """Return (N, L, D)."""
        scores = self.query_network(x) @ self.key_network(x).transpose(-2, -1)
        return self.to_weights(scores, x) @ self.value_network(x)

    def to_weights(self, scores, x):
        """Return the softmax of the scaled scores."""
        return (scores / math.sqrt(self.query_network.out_features)).softmax(-1)


class HeadByWidth(Head):
    """Wrong: its scores are divided by the root of the width of the input."""

    def to_weights(self, scores, x):
        """Return the softmax of scores that are too small."""
        return (scores / math.sqrt(x.shape[-1])).softmax(-1)


class PlainList(nn.Module):
    """Right: its heads are modules in a plain list."""

    head = Head

    def __init__(self, num_heads, vec_len, head_size):
        super().__init__()
        self.heads = [self.head(vec_len, head_size) for _ in range(num_heads)]
        self.project = nn.Linear(num_heads * head_size, vec_len)

    def forward(self, x):
        """Return (N, L, E)."""
        return self.project(torch.cat([head(x) for head in self.heads], -1))


class PlainListByWidth(PlainList):
    """Wrong: as its heads are."""

    head = HeadByWidth


class CountedByN(PlainList):
    """Right: `n` is the number of heads, and the width is a constant of the module."""

    def __init__(self, n, head_size):
        super().__init__(n, n_embed, head_size)


class CountedByNByWidth(PlainListByWidth):
    """Wrong: as its heads are."""

    def __init__(self, n, head_size):
        super().__init__(n, n_embed, head_size)


class TwiceTheHeads(PlainList):
    """Has two heads for each that it is asked for, and sums them in pairs."""

    def __init__(self, num_heads, vec_len, head_dim):
        super().__init__(2 * num_heads, vec_len, head_dim)
        self.project = nn.Linear(num_heads * head_dim, vec_len)

    def forward(self, x):
        """Return (N, L, E)."""
        mixed = torch.cat([head(x) for head in self.heads], -1)
        return self.project(mixed.unflatten(-1, (2, -1)).sum(-2))


class OfPatches(nn.Module):
    """Right: takes as many rows as it is built for, and a class token."""

    def __init__(self, embed_dim, num_heads, n_patches):
        super().__init__()
        self.heads, self.rows = num_heads, n_patches + 1
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        """Return (N, L, E)."""
        rows = (t.view(-1, self.rows, x.shape[-1]) for t in self.qkv(x).chunk(3, -1))
        return self.proj(merge(self.attended(*(split(t, self.heads) for t in rows))))

    def attended(self, q, k, v):
        """Return (N, H, L, D)."""
        return attend(q, k, v)


class OfPatchesUnscaled(OfPatches):
    """Wrong: its scores are not divided."""

    def attended(self, q, k, v):
        """Return (N, H, L, D) of sharper weights."""
        return attend(q * math.sqrt(q.shape[-1]), k, v)


class FromGenerator:
    """Right: draws its weights from a generator that it is given."""

    def __init__(self, d_model: int, n_head: int, rng: np.random.Generator):
        self.n_head = n_head
        self.W_q, self.W_k, self.W_v, self.W_o = (
            rng.normal(size=(d_model, d_model)) for _ in range(4)
        )

    def __call__(self, x):
        """Return (N, L, E)."""
        q, k, v = (self.split(x @ w) for w in (self.W_q, self.W_k, self.W_v))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        exp = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = exp / exp.sum(-1, keepdims=True) @ v
        return mixed.swapaxes(1, 2).reshape(x.shape) @ self.W_o

    def split(self, rows):
        """Return (N, H, L, D)."""
        n, length, width = rows.shape
        return rows.reshape(n, length, self.n_head, width // self.n_head).swapaxes(1, 2)


class FromGeneratorInterleaved(FromGenerator):
    """Wrong: its heads take every H-th column of the projections of values."""

    def split(self, rows):
        """Return (N, H, L, D), the heads as the last axis first."""
        n, length, width = rows.shape
        heads = rows.reshape(n, length, width // self.n_head, self.n_head)
        return heads.transpose(0, 3, 1, 2)


class EvenHeads(nn.Module):
    """Wrong, its heads are merged without a transpose, and built with an even number alone."""

    def __init__(self, dim, num_heads):
        super().__init__()
        assert num_heads % 2 == 0, "num_heads should be even"
        self.num_heads = num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (
            nn.Parameter(torch.zeros(dim, dim)) for _ in range(4)
        )

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(x @ w, self.num_heads) for w in (self.W_q, self.W_k, self.W_v))
        return attend(q, k, v).reshape(x.shape) @ self.W_o


class OfMangledConfig(nn.Module):
    """Right: of a configuration `__C` in capitals, called with values, keys, queries and a mask."""

    SCALES = True

    def __init__(self, __C):  # noqa: N803  (as public code has it)
        super().__init__()
        self.__C = __C
        self.to_v = nn.Linear(__C.HIDDEN_SIZE, __C.HIDDEN_SIZE)
        self.to_k = nn.Linear(__C.HIDDEN_SIZE, __C.HIDDEN_SIZE)
        self.to_q = nn.Linear(__C.HIDDEN_SIZE, __C.HIDDEN_SIZE)
        self.merge = nn.Linear(__C.HIDDEN_SIZE, __C.HIDDEN_SIZE)
        self.dropout = nn.Dropout(__C.DROPOUT_R)

    def forward(self, v, k, q, mask):
        def heads(rows):
            return rows.view(*rows.shape[:2], self.__C.MULTI_HEAD, -1).transpose(1, 2)

        q, k, v = heads(self.to_q(q)), heads(self.to_k(k)), heads(self.to_v(v))
        scores = q @ k.transpose(-2, -1)
        if self.SCALES:
            scores = scores / math.sqrt(self.__C.HIDDEN_SIZE_HEAD)
        if mask is not None:
            scores = scores.masked_fill(mask, -1e9)
        rows = self.dropout(scores.softmax(dim=-1)) @ v
        return self.merge(rows.transpose(1, 2).flatten(2))


class OfMangledConfigUnscaled(OfMangledConfig):
    """Wrong: the scores are not scaled."""

    SCALES = False


class WidthMayBeNone(nn.Module):
    """Right: one of two widths that are None by default is needed; `h` is the keys, if it is passed."""

    root = 0.5

    def __init__(self, n_heads, input_dim, embed_dim=None, val_dim=None):
        super().__init__()
        if val_dim is None:
            if embed_dim is None:
                raise ValueError("either embed_dim or val_dim is needed")
            val_dim = embed_dim // n_heads
        self.W_query, self.W_key, self.W_val = (
            nn.Parameter(torch.zeros(n_heads, input_dim, val_dim)) for _ in range(3)
        )
        self.W_out = nn.Parameter(torch.zeros(n_heads, val_dim, embed_dim))

    def forward(self, q, h=None):
        """Return (N, L, E)."""
        h = q if h is None else h
        rows = zip((q, h, h), (self.W_query, self.W_key, self.W_val), strict=True)
        q, k, v = (torch.einsum("nle,hed->nhld", x, w) for x, w in rows)
        weights = (q @ k.mT / q.shape[-1] ** self.root).softmax(dim=-1)
        return torch.einsum("nhld,hde->nle", weights @ v, self.W_out)


class WidthMayBeNoneUnscaled(WidthMayBeNone):
    """Wrong: the scores are not scaled."""

    root = 0.0


class GroupsByDefault(nn.Module):
    """Right: eight groups by default, into which the heads have to be divided."""

    step = 1

    def __init__(self, d_hidden=1024, n_heads=32, n_groups=8):
        super().__init__()
        if n_heads % n_groups:
            raise ValueError("n_heads should be a multiple of n_groups")
        self.n_heads, self.n_groups = n_heads, n_groups
        narrow = d_hidden // n_heads * n_groups
        self.W_Q, self.W_O = (nn.Linear(d_hidden, d_hidden, bias=False) for _ in range(2))
        self.W_K, self.W_V = (nn.Linear(d_hidden, narrow, bias=False) for _ in range(2))

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (
            rows.unflatten(-1, (count, -1)).transpose(1, 2)
            for rows, count in (
                (self.W_Q(x), self.n_heads), (self.W_K(x), self.n_groups), (self.W_V(x), self.n_groups)
            )
        )
        q = q.unflatten(1, (self.n_groups, -1))
        weights = (self.step * q @ k[:, :, None].mT / q.shape[-1] ** 0.5).softmax(dim=-1)
        return self.W_O((weights @ v[:, :, None]).flatten(1, 2).transpose(1, 2).flatten(2))


class GroupsByDefaultTwice(GroupsByDefault):
    """Wrong: twice the scores."""

    step = 2


class BuiltForTraining(nn.Module):
    """Right: it drops weights where it is built for training, as it is by default."""

    def __init__(self, embed_dim, num_heads, training=True, dropout=0.0):
        super().__init__()
        self.num_heads, self.drops, self.rate = num_heads, training, dropout
        self.qkv, self.proj = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (
            rows.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for rows in self.qkv(x).chunk(3, -1)
        )
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)
        weights = nn.functional.dropout(weights, self.rate, training=self.drops)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))


class BuiltForEither(BuiltForTraining):
    """Wrong: it drops weights always."""

    def __init__(self, embed_dim, num_heads, training=True, dropout=0.0):
        super().__init__(embed_dim, num_heads, True, dropout)


class OneOfConfig(nn.Module):
    """Right: one head, whose width is the input's by the number of heads."""

    def __init__(self, config):
        super().__init__()
        head_size = config.n_embd // config.n_head
        self.query, self.key, self.value = (
            nn.Linear(config.n_embd, head_size) for _ in range(3)
        )

    def forward(self, x):
        """Return (N, L, D)."""
        return attend(self.query(x), self.key(x), self.value(x))


class WideOfConfig(nn.Module):
    """Wrong with several heads, each as wide as the input: rows and heads are viewed, not moved."""

    def __init__(self, config):
        super().__init__()
        self.heads = config.n_head
        self.query = nn.Linear(config.n_embd, config.n_head * config.n_embd)
        self.key = nn.Linear(config.n_embd, config.n_head * config.n_embd)
        self.value = nn.Linear(config.n_head * config.n_embd, config.n_embd)

    def forward(self, x):
        """Return (N, L, E)."""
        shape = (len(x), self.heads, -1, x.shape[-1])
        seen = attend(self.query(x).view(shape), self.key(x).view(shape), x[:, None])
        return self.value(merge(seen))
