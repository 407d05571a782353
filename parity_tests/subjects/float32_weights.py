"""Layers of NumPy that make their weights in float32, and one that casts its softmax alone."""

from __future__ import annotations

import numpy as np


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True)).astype(np.float32)
    return powers / powers.sum(-1, keepdims=True)


class OfFloat32:
    """Right: of float32 by its weights."""

    dtype = np.float32
    scale = 1.0

    def __init__(self, d_model, rng=None):
        rng = rng or np.random.default_rng(0)
        self.Wq, self.Wk, self.Wv = (
            rng.standard_normal((d_model, d_model)).astype(self.dtype) for _ in range(3)
        )

    def forward(self, x):
        scores = (x @ self.Wq) @ np.swapaxes(x @ self.Wk, -1, -2) / x.shape[-1] ** 0.5
        return softmax(self.scale * scores) @ (x @ self.Wv)


class OfFloat32Doubled(OfFloat32):
    """Wrong: its scores are twice as large."""

    scale = 2.0


class OfFloat64(OfFloat32):
    """Wrong: its weights are of float64, and its softmax has half of the digits."""

    dtype = np.float64


class Documented(OfFloat64):
    """Right: its softmax is always computed in float32."""
