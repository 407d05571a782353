"""Layers that take over torch's layer by a method of their own, right and wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


def attend(q, k, v, heads):
    """Return (N, L, E)."""
    q, k, v = (x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / q.dtype.type(np.sqrt(q.shape[-1]))
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = powers / powers.sum(-1, keepdims=True) @ v
    return mixed.swapaxes(1, 2).reshape(*mixed.shape[0:1], mixed.shape[2], -1)


class TakesArrays:
    """Right: X @ W of weights that are transposed when they are taken over."""

    transposes = True

    def __init__(self, d_model, n_heads):
        self.heads = n_heads
        self.Wq, self.Wk, self.Wv, self.Wo = (np.eye(d_model) for _ in range(4))
        self.bq, self.bk, self.bv, self.bo = (np.zeros(d_model) for _ in range(4))

    def load_weights(self, in_proj_weight, in_proj_bias, out_proj_weight, out_proj_bias):
        """Take the arrays of an nn.MultiheadAttention."""
        self.Wq, self.Wk, self.Wv = (w.T for w in np.split(in_proj_weight, 3))
        self.bq, self.bk, self.bv = np.split(in_proj_bias, 3)
        self.Wo = out_proj_weight.T if self.transposes else out_proj_weight
        self.bo = out_proj_bias

    def forward(self, query, key, value):
        """Return (N, L, E)."""
        rows = (query @ self.Wq + self.bq, key @ self.Wk + self.bk, value @ self.Wv + self.bv)
        return attend(*rows, self.heads) @ self.Wo + self.bo


class TakesArraysAsTheyAre(TakesArrays):
    """Wrong on purpose: the output's weight is applied as X @ W, and is taken as W @ x has it."""

    transposes = False


class TakesStates(TakesArrays):
    """Right: a state dict."""

    def load_weights(self, state_dict):
        """Take ``nn.MultiheadAttention.state_dict()``."""
        found = {name: array.numpy() for name, array in state_dict.items()}
        super().load_weights(
            *(found[n] for n in ("in_proj_weight", "in_proj_bias")),
            *(found[n] for n in ("out_proj.weight", "out_proj.bias")),
        )


@dataclass
class MadeOfTorchs:
    """Right: a class method makes it, and it has no state dict."""

    num_heads: int
    w_in: np.ndarray
    b_in: np.ndarray
    w_out: np.ndarray
    b_out: np.ndarray

    @classmethod
    def from_torch(cls, mha):
        """Return the layer of an nn.MultiheadAttention."""
        arrays = (mha.in_proj_weight, mha.in_proj_bias, mha.out_proj.weight, mha.out_proj.bias)
        return cls(mha.num_heads, *(each.detach().numpy().copy() for each in arrays))

    def __call__(self, query, key, value):
        """Return (N, L, E)."""
        rows = (
            x @ w.T + b
            for x, w, b in zip(
                (query, key, value), np.split(self.w_in, 3), np.split(self.b_in, 3), strict=True
            )
        )
        return attend(*rows, self.num_heads) @ self.w_out.T + self.b_out


class MadeOfTorchsShifted(MadeOfTorchs):
    """Wrong on purpose: the biases of keys and values are exchanged."""

    @classmethod
    def from_torch(cls, mha):
        """Return the layer of an nn.MultiheadAttention."""
        made = super().from_torch(mha)
        q, k, v = np.split(made.b_in, 3)
        made.b_in = np.concatenate([q, v, k])
        return made


class TakesBiases(nn.Module):
    """Right: its Linears have biases by a switch, and it takes over a layer that has them."""

    def __init__(self, embed_dim, num_heads, bias=True):
        super().__init__()
        self.heads = num_heads
        self.to_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=bias)
        self.to_out = nn.Linear(embed_dim, embed_dim, bias=bias)

    @torch.no_grad()
    def load_torch(self, mha):
        """Copy the weights of an nn.MultiheadAttention."""
        self.to_qkv.weight.copy_(mha.in_proj_weight)
        self.to_qkv.bias.copy_(mha.in_proj_bias)
        self.to_out.weight.copy_(mha.out_proj.weight)
        self.to_out.bias.copy_(mha.out_proj.bias)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = self.to_qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))
