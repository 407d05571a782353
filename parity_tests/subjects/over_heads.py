"""Wrong on purpose, but for ``over_positions``: heads of one position attend to each other."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


def normal(scores):
    exp = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


class Layer(nn.Module):
    """Heads (N, L, H, D) whose axis is never moved."""

    causal = False

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, x):
        """Return (N, L, E)."""
        parts = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (f(x).unflatten(-1, (self.num_heads, -1)) for f in parts)
        return self.out_proj(self.attend(q, k, v).flatten(2))

    def attend(self, q, k, v):
        """Return the heads, (N, L, H, D)."""
        return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1) @ v


class ByTorch(Layer):
    """The same by torch's function."""

    def attend(self, q, k, v):
        """Return the heads, (N, L, H, D)."""
        return scaled_dot_product_attention(q, k, v)


def packed(x, w_qkv, b_qkv, w_out, b_out, num_heads):
    """A function of one packed weight."""
    n, rows, width = x.shape
    q, k, v = (
        each.reshape(n, rows, num_heads, -1) for each in np.split(x @ w_qkv.T + b_qkv, 3, axis=-1)
    )
    weights = normal(np.einsum("nlhd,nlgd->nlhg", q, k) / np.sqrt(q.shape[-1]))
    return np.einsum("nlhg,nlgd->nlhd", weights, v).reshape(n, rows, width) @ w_out.T + b_out


def over_positions(x, w_qkv, b_qkv, w_out, b_out, num_heads):
    """Right: the sum over positions."""
    n, rows, width = x.shape
    q, k, v = (
        each.reshape(n, rows, num_heads, -1) for each in np.split(x @ w_qkv.T + b_qkv, 3, axis=-1)
    )
    weights = normal(np.einsum("nlhd,nshd->nhls", q, k) / np.sqrt(q.shape[-1]))
    return np.einsum("nhls,nshd->nlhd", weights, v).reshape(n, rows, width) @ w_out.T + b_out


def normalised_over_heads(query, key, value, num_heads):
    """Scores (N, L, S, H): the last axis is that of the heads."""
    q, k, v = (x.reshape(*x.shape[:2], num_heads, -1) for x in (query, key, value))
    weights = normal(np.einsum("nlhd,nshd->nlsh", q, k) / np.sqrt(q.shape[-1]))
    return np.einsum("nlsh,nshd->nlhd", weights, v).reshape(query.shape)


class SummedHeads(Layer):
    """Each position mixes the plain sum of its heads' values, by weights of its own alone."""

    def attend(self, q, k, v):
        """Return the heads, (N, L, H, D)."""
        return torch.sigmoid(q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=-1) @ v


class SplitTwice(Layer):
    """The queries are split to heads twice, and the root of the width is one of float32."""

    def split(self, rows):
        return rows.reshape(len(rows), -1, self.num_heads, self.out_proj.in_features // self.num_heads)

    def forward(self, query, key, value):
        """Return (N, L, E)."""
        q = self.split(self.split(self.q_proj(query)).transpose(1, 2)).transpose(1, 2)
        k = self.split(self.k_proj(key)).transpose(1, 2)
        v = self.split(self.v_proj(value)).transpose(1, 2)
        scores = q @ k.mT / torch.sqrt(torch.tensor(q.shape[-1], dtype=torch.float32))
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
