"""Attentions with one step that is wrong in a way that other checks could take for a cause."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn


def _softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _scores(query, key):
    return query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])


def _from_own(scores):
    return np.triu(np.ones(scores.shape[-2:]), k=0)


def strict_filled(query, key, value, causal=False):
    """The diagonal is hidden too, by a finite number."""
    scores = _scores(query, key)
    if causal:
        scores = np.where(_from_own(scores) > 0, -1e9, scores)
    return _softmax(scores) @ value


def strict_added(query, key, value, causal=False):
    """The diagonal is hidden too, by an addend."""
    scores = _scores(query, key)
    if causal:
        scores = scores - 1e9 * _from_own(scores)
    return _softmax(scores) @ value


def always_strict(query, key, value):
    """The diagonal is hidden too, and always; row 0 sees everything."""
    scores = _scores(query, key)
    return _softmax(np.where(_from_own(scores) > 0, -1e9, scores)) @ value


def always_causal(query, key, value):
    """Right: the future is hidden always."""
    scores = _scores(query, key)
    hidden = np.triu(np.ones(scores.shape[-2:]), k=1) > 0
    return _softmax(np.where(hidden, -np.inf, scores)) @ value


def doubled(query, key, value):
    """Twice the output."""
    return 2 * (_softmax(_scores(query, key)) @ value)


def tripled(query, key, value):
    """No bug with a name: three times the output."""
    return 3 * (_softmax(_scores(query, key)) @ value)


def returned(query, key, value):
    """The query itself."""
    return query


class Strict(nn.Module):
    """Causal self-attention in which a row does not see its own key."""

    def __init__(self, d_model, n_head, block_size=128):
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(d_model, 3 * d_model)
        self.c_proj = nn.Linear(d_model, d_model)
        self.register_buffer("mask", torch.tril(torch.ones(block_size, block_size), diagonal=-1))

    def forward(self, x):
        n, length, width = x.shape
        heads = (t.view(n, length, self.n_head, -1).transpose(1, 2)
                 for t in self.c_attn(x).split(width, dim=2))  # fmt: skip
        q, k, v = heads
        scores = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
        scores = scores.masked_fill(self.mask[:length, :length] == 0, -1e9)
        out = torch.softmax(scores, -1) @ v
        return self.c_proj(out.transpose(1, 2).reshape(n, length, width))


class Layer(nn.Module):
    """What the layers below share; right by itself."""

    key_from = "k_proj"

    def __init__(self, embed_dim, num_heads, dropout=0.0):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        self.dropout = nn.Dropout(dropout)

    def split(self, x):
        return x.view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)

    def merge(self, x):
        return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)

    def forward(self, query, key, value, mask=None):
        q = self.split(self.q_proj(query))
        k = self.split(getattr(self, self.key_from)(key))
        v = self.split(self.v_proj(value))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        out = self.dropout(torch.softmax(scores, -1)) @ v
        return self.out_proj(self.merge(out))


class KeyOfQuery(Layer):
    """Keys are projected with the weights of the queries."""

    key_from = "q_proj"


class SplitByView(Layer):
    """Heads are split without a transpose; 0 hides in the mask, as it should."""

    def split(self, x):
        return x.reshape(x.shape[0], self.num_heads, x.shape[1], -1)


class MergedByView(Layer):
    """Heads are merged without a transpose; dropout falls on the weights, as it should."""

    def merge(self, x):
        return x.reshape(x.shape[0], x.shape[2], -1)
