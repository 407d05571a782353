"""Layers whose constructors and classes have names that could be read amiss."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from constructors import Layer


class OfArrays:
    """Right, in NumPy: weights (in, out) and short-named biases; the heads one after another."""

    biases_of_output = 1

    def __init__(self, Wq, bq, Wk, bk, Wv, bv, Wo, bo, num_heads):
        self.q, self.k, self.v = (Wq, bq), (Wk, bk), (Wv, bv)
        self.Wo, self.bo, self.num_heads = Wo, bo, num_heads

    def __call__(self, x):
        """Return (N, L, E)."""
        q, k, v = (np.split(x @ w + b, self.num_heads, axis=-1) for w, b in (self.q, self.k, self.v))
        rows = np.split(self.Wo, self.num_heads)
        out = 0
        for head in range(self.num_heads):
            scores = q[head] @ k[head].swapaxes(1, 2) / math.sqrt(q[head].shape[-1])
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out = out + weights / weights.sum(axis=-1, keepdims=True) @ v[head] @ rows[head]
        return out + self.bo * (self.biases_of_output or self.num_heads)


class OfArraysOncePerHead(OfArrays):
    """Wrong: the bias of the output is added for each head."""

    biases_of_output = 0


class LinearNormal(nn.Linear):
    """A Linear drawn from the normal distribution."""

    def reset_parameters(self):
        """Draw the weights."""
        nn.init.normal_(self.weight)


class NormalHead(nn.Module):
    """One head."""

    def __init__(self, d_model, d_head):
        super().__init__()
        self.w_q, self.w_k, self.w_v = (LinearNormal(d_model, d_head, bias=False) for _ in range(3))

    def forward(self, x):
        """Return (N, L, D)."""
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        return (q @ k.transpose(1, 2) * q.shape[-1] ** -0.5).softmax(-1) @ v


class OfNormalHeads(nn.Module):
    """Right: Linears of a class whose name has `Norm` in it are no norms."""

    def __init__(self, n_heads, d_model, d_head):
        super().__init__()
        self.heads = nn.ModuleList(NormalHead(d_model, d_head) for _ in range(n_heads))
        self.w_o = LinearNormal(n_heads * d_head, d_model, bias=False)

    def forward(self, x):
        """Return (N, L, E)."""
        return self.w_o(torch.cat([head(x) for head in self.heads], dim=2))


class WithAnImaginaryPart(nn.Module):
    """Without a counterpart: its output's weights are two arrays, one for each part of a number."""

    def __init__(self, n_heads, d_model):
        super().__init__()
        self.n_heads = n_heads
        self.in_proj, self.out_proj = nn.Linear(d_model, 3 * d_model), nn.Module()
        for name in ("w_r", "w_i"):
            self.out_proj.register_parameter(name, nn.Parameter(torch.randn(d_model, d_model)))

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = self.in_proj(x).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        heads = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v
        rows = heads.transpose(1, 2).flatten(2)
        return rows @ self.out_proj.w_r - rows.roll(1, -1) @ self.out_proj.w_i


class OfNestedWords(Layer):
    """Right: a configuration of dictionaries, whose widths of a head are called after the key."""

    def __init__(self, config):
        given = config["attention"]
        super().__init__(given["heads"] * given["d_key"], given["heads"])
        assert given["d_model"] == given["heads"] * given["d_value"]


class OfContextSize(Layer):
    """Right, and causal: the size of its context is the length of the longest sequence."""

    def __init__(self, embed_dim, num_heads, context_size):
        super().__init__(embed_dim, num_heads)
        self.register_buffer("later", torch.ones(context_size, context_size).triu(1).bool())

    def _mixed(self, q, k, v):
        rows = q.shape[2]
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(self.later[:rows, :rows], -torch.inf)
        return scores.softmax(-1) @ v


class OfContextWidth(Layer):
    """Right: the size of its context is the width of the rows of keys and values."""

    def __init__(self, embed_dim, num_heads, context_size):
        super().__init__(embed_dim, num_heads)
        self.k_proj, self.v_proj = (nn.Linear(context_size, embed_dim) for _ in range(2))

    def forward(self, x, context):
        """Return (N, L, E)."""
        return self.out_proj(self._mixed(*self._heads(x, context, context)).transpose(1, 2).flatten(2))
