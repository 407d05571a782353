"""Layers whose Linears are classes of their own, and others that few people write."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


class Dense:
    """x @ w + b, with what an optimizer keeps beside them."""

    def __init__(self, inputs, units):
        self.w = np.random.uniform(-1, 1, (inputs, units))
        self.b = np.zeros((1, units))
        self.v, self.m = np.zeros_like(self.w), np.zeros_like(self.w)
        self.grads = {"w": np.zeros_like(self.w)}

    def forward(self, x):
        """Return x @ w + b."""
        return x @ self.w + self.b


class Dropout:
    """Drops where a call is made in training."""

    def __init__(self, rate):
        self.rate = rate

    def forward(self, x, training):
        """Return what is kept, made up for what is not."""
        if not training:
            return x
        return x * (np.random.random(x.shape) >= self.rate) / (1 - self.rate)


class NumpyLayer:
    """Attention of NumPy with a Dense for each of q, k, v and the output."""

    scaled = True

    def __init__(self, d_model=16, heads_num=2, dropout=0.1):
        self.heads = heads_num
        self.K_linear, self.Q_linear, self.V_linear, self.O_linear = (
            Dense(d_model, d_model) for _ in range(4)
        )
        self.dropout = Dropout(dropout)

    def split(self, x):
        """Return (N, L, E) as (N, H, L, D)."""
        return x.reshape(*x.shape[:2], self.heads, x.shape[2] // self.heads).swapaxes(1, 2)

    def forward(self, query, key, value, training=True):
        """Return (N, L, E)."""
        q = self.split(self.Q_linear.forward(query))
        k = self.split(self.K_linear.forward(key))
        v = self.split(self.V_linear.forward(value))
        scores = q @ k.swapaxes(2, 3) / (q.shape[-1] ** 0.5 if self.scaled else 1)
        odds = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        weights = self.dropout.forward(odds / odds.sum(-1, keepdims=True), training)
        mixed = (weights @ v).swapaxes(1, 2)
        return self.O_linear.forward(mixed.reshape(*query.shape[:2], self.O_linear.w.shape[1]))


class UnscaledNumpyLayer(NumpyLayer):
    """Wrong on purpose: the scores are not scaled."""

    scaled = False


class DropsAlways(NumpyLayer):
    """Wrong on purpose: what is kept is made up for in evaluation too."""

    def __init__(self, d_model=16, heads_num=2, dropout=0.1):
        super().__init__(d_model, heads_num, dropout)
        self.dropout = Rescaled(dropout)


class KnowsNoEvaluation(NumpyLayer):
    """Wrong on purpose: no call can be made without dropout."""

    def forward(self, query, key, value):
        """Return (N, L, E)."""
        return super().forward(query, key, value, training=True)


class Rescaled(Dropout):
    """Divides by 1 - rate although nothing is dropped."""

    def forward(self, x, training):
        """Return what is kept, too large in evaluation."""
        return super().forward(x, training) / (1 if training else 1 - self.rate)


class NumbersOfAxes(nn.Module):
    """Takes (L, E), and the numbers of its axes as arguments of the constructor."""

    def __init__(self, d_model=2, row_dim=0, col_dim=1):
        super().__init__()
        self.W_q, self.W_k, self.W_v = (nn.Linear(d_model, d_model, bias=False) for _ in range(3))
        self.row_dim, self.col_dim = row_dim, col_dim

    def forward(self, tokens, mask=None):
        """Return (L, E); a mask of three axes turns the softmax over the queries."""
        q, k, v = self.W_q(tokens), self.W_k(tokens), self.W_v(tokens)
        scores = q @ k.transpose(self.row_dim, self.col_dim) / k.size(self.col_dim) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf)
        return scores.softmax(self.col_dim) @ v


class MaskForgotten(NumbersOfAxes):
    """Wrong on purpose: hidden keys lose 3 of their score, and keep weight."""

    def forward(self, tokens, mask=None):
        """Return (L, E)."""
        q, k, v = self.W_q(tokens), self.W_k(tokens), self.W_v(tokens)
        scores = q @ k.transpose(self.row_dim, self.col_dim) / k.size(self.col_dim) ** 0.5
        return (scores if mask is None else scores - 3.0 * mask).softmax(self.col_dim) @ v


class OfMaps(nn.Module):
    """Attention over the places of a map (N, E, height, width), by convolutions of width 1."""

    scaled = True

    def __init__(self, channels, heads=4):
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.to_out = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        """Return a map."""
        parts = self.to_qkv(x).flatten(2).chunk(3, dim=1)
        q, k, v = (each.unflatten(1, (self.heads, -1)) for each in parts)
        scores = q.mT @ k / (q.shape[2] ** 0.5 if self.scaled else 1)
        return self.to_out((v @ scores.softmax(-1).mT).reshape(x.shape))


class UnscaledOfMaps(OfMaps):
    """Wrong on purpose: the scores are not scaled."""

    scaled = False


class OfChannels(OfMaps):
    """The same of sequences (N, E, L)."""

    def __init__(self, channels, heads=4):
        super().__init__(channels, heads)
        self.to_qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.to_out = nn.Conv1d(channels, channels, 1)


class FromTorch(nn.Module):
    """One Linear for q, k and v, and a method that takes over the weights of torch's layer."""

    head_by_head = False

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    @classmethod
    def from_torch(cls, mha):
        """Return a layer with the weights of torch's, all of q first."""
        layer = cls(mha.embed_dim, mha.num_heads)
        layer.qkv.weight, layer.qkv.bias = mha.in_proj_weight, mha.in_proj_bias
        layer.proj.load_state_dict(mha.out_proj.state_dict())
        return layer

    def forward(self, x):
        """Return (N, L, E)."""
        shape = (self.num_heads, 3, -1) if self.head_by_head else (3, self.num_heads, -1)
        rows = self.qkv(x).unflatten(-1, shape)
        q, k, v = rows.movedim(-2 if self.head_by_head else -3, 0).transpose(-2, -3)
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.proj((weights @ v).transpose(-2, -3).flatten(-2))


class FromTorchHeadByHead(FromTorch):
    """Wrong on purpose: reads the rows head by head, and takes them over as torch has them."""

    head_by_head = True
