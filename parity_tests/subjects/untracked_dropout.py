"""Layers without modes, whose dropout asks whether gradients are tracked, or nothing."""

from __future__ import annotations

import torch
from torch.nn.functional import linear


class Attention:
    """Right: it drops where gradients are tracked alone."""

    def __init__(self, embed_dim, num_heads, dropout=0.0):
        self.num_heads, self.dropout = num_heads, dropout
        self.w_q, self.w_k, self.w_v, self.w_out = (
            torch.randn(embed_dim, embed_dim) for _ in range(4)
        )

    def drops(self):
        return self.dropout > 0 and torch.is_grad_enabled()

    def forward(self, x):
        q, k, v = (
            linear(x, w).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        if self.drops():
            kept = torch.rand_like(weights) >= self.dropout
            weights = weights * kept / (1 - self.dropout)
        return linear((weights @ v).transpose(1, 2).flatten(2), self.w_out)


class Always(Attention):
    """Wrong: it drops wherever it has a probability."""

    def drops(self):
        return self.dropout > 0
