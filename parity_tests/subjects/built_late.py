"""Layers that make their weights in the first call, ask for a switch, or take weights by heads."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


class FirstCall:
    """Right: its weights are None until it is called, and its rows are kept for a backward pass."""

    def __init__(self, d_model, num_heads):
        self.d_model, self.num_heads = d_model, num_heads
        self.W_q = self.W_k = self.W_v = self.W_o = None
        self.Q = self.K = self.V = None
        self.weights = None

    def scale(self):
        """Return what the scores are divided by."""
        return np.sqrt(self.d_model // self.num_heads)

    def forward(self, inputs):
        """Return (N, L, E)."""
        if self.W_q is None:
            rng = np.random.default_rng(1)
            shape = (4, inputs.shape[-1], self.d_model)
            self.W_q, self.W_k, self.W_v, self.W_o = rng.standard_normal(shape)
        self.Q, self.K, self.V = (
            (inputs @ w).reshape(*inputs.shape[:2], self.num_heads, -1).swapaxes(1, 2)
            for w in (self.W_q, self.W_k, self.W_v)
        )
        scores = self.Q @ self.K.swapaxes(2, 3) / self.scale()
        exp = np.exp(scores - scores.max(-1, keepdims=True))
        self.weights = exp / exp.sum(-1, keepdims=True)
        return (self.weights @ self.V).swapaxes(1, 2).reshape(inputs.shape) @ self.W_o


class FirstCallByWidth(FirstCall):
    """Wrong: divided by the root of the whole width."""

    def scale(self):
        """Return the root of the width."""
        return np.sqrt(self.d_model)


class OwnKernel(nn.Module):
    """Right where no kernel of half precision is allowed, as the constructor asks."""

    scaled = True

    def __init__(self, allow_kernel: bool):
        super().__init__()
        self.allow_kernel = allow_kernel

    def forward(self, q, k, v):
        """Return (N, H, L, D)."""
        if self.allow_kernel:
            q, k, v = q.half(), k.half(), v.half()
        scores = q @ k.mT / (q.shape[-1] ** 0.5 if self.scaled else 1)
        return scores.softmax(-1) @ v


class OwnKernelUnscaled(OwnKernel):
    """Wrong: its scores are not scaled."""

    scaled = False


def by_heads(X, W_q, W_k, W_v, W_o):
    """Return weights and output of X (N, L, E), all matrices with an axis of heads."""
    q, k, v = (torch.einsum("nle,hed->nhld", X, w) for w in (W_q, W_k, W_v))
    weights = (q @ k.mT / W_q.shape[-1] ** 0.5).softmax(-1)
    return weights, torch.einsum("nhld,hde->nle", weights @ v, W_o)


def by_heads_of_one(X, W_q, W_k, W_v, W_o):
    """Return by_heads, in which all heads have the values of the first: wrong."""
    return by_heads(X, W_q, W_k, W_v[:1].expand_as(W_v), W_o)
