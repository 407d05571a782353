"""Layers of a small autograd library of their own, whose tensors hold NumPy arrays as `data`."""

from __future__ import annotations

import numpy as np


class Tensor:
    """An array in float64, with the operations that the layers need."""

    def __init__(self, data):
        self.data = np.asarray(data, dtype=np.float64)
        self.grad = np.zeros_like(self.data)

    def matmul(self, other):
        """Return the product of two matrices, which has no operator."""
        return Tensor(self.data @ other.data)

    def __add__(self, other):
        return Tensor(self.data + other.data)

    def heads(self, number):
        """Return (N, L, E) as (N, H, L, D)."""
        rows = self.data.reshape(*self.data.shape[:2], number, -1)
        return Tensor(rows.swapaxes(1, 2))


class Linear:
    """X @ W + b."""

    def __init__(self, width):
        self.weight = Tensor(np.random.default_rng(0).standard_normal((width, width)))
        self.bias = Tensor(np.zeros(width))

    def __call__(self, x):
        return x.matmul(self.weight) + self.bias


class OfTensors:
    """Right: it takes and returns tensors."""

    factor = 1.0

    def __init__(self, n_embd, n_head):
        self.n_head = n_head
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (Linear(n_embd) for _ in range(4))

    def __call__(self, x):
        """Return (N, L, E)."""
        q, k, v = (p(x).heads(self.n_head).data for p in (self.q_proj, self.k_proj, self.v_proj))
        scores = self.factor * q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out = weights / weights.sum(-1, keepdims=True) @ v
        return self.out_proj(Tensor(out.swapaxes(1, 2).reshape(x.data.shape)))


class OfTensorsScaledTwice(OfTensors):
    """Wrong: twice the scores."""

    factor = 2.0
