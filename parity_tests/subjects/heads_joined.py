"""Functions of heads, of one sequence or several, whose output joins them; and default widths."""

from __future__ import annotations

from torch import nn


def of_samples(q, k, v):
    """Right: (N, H, L, D) to (N, L, H D)."""
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


def of_one(q, k, v):
    """Right: (H, L, D) to (L, H D)."""
    heads, length, width = q.shape
    weights = (q @ k.mT / width**0.5).softmax(-1)
    return (weights @ v).transpose(0, 1).reshape(length, heads * width)


def of_one_unmoved(q, k, v):
    """Wrong: the heads are joined without their axis being moved."""
    heads, length, width = q.shape
    weights = (q @ k.mT / width**0.5).softmax(-1)
    return (weights @ v).reshape(length, heads * width)


class WidthByDefault(nn.Module):
    """Right: `d_data` is the width of a head, as its default says beside the others."""

    def __init__(self, num_heads=8, d_model=512, d_data=64):
        super().__init__()
        self.num_heads, self.width = num_heads, d_data
        self.q, self.k, self.v = (nn.Linear(d_model, num_heads * d_data) for _ in range(3))
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        q, k, v = (
            each(x).unflatten(-1, (self.num_heads, self.width)).transpose(1, 2)
            for each in (self.q, self.k, self.v)
        )
        weights = (q @ k.mT / self.scale()).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))

    def scale(self):
        return self.width**0.5


class WidthByDefaultUnscaled(WidthByDefault):
    """Wrong: its scores are not divided."""

    def scale(self):
        return 1
