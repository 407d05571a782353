"""Layers whose query is the first row alone: they answer (N, 1, E) to (N, L, E)."""

from __future__ import annotations

from torch import nn

from styles import attend, merge, split


class FirstRow(nn.Module):
    """Asks with the first row, the token of the class."""

    unscaled = 1.0
    first_key = 0

    def __init__(self, dim, num_heads=8, qkv_bias=False, attn_drop=0.0):
        super().__init__()
        self.heads = num_heads
        self.wq, self.wk, self.wv = (nn.Linear(dim, dim, bias=qkv_bias) for _ in range(3))
        self.drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        """Return (N, 1, E)."""
        rows = x[:, :1] * self.unscaled, x[:, self.first_key :], x[:, self.first_key :]
        linears = (self.wq, self.wk, self.wv)
        q, k, v = (split(f(r), self.heads) for f, r in zip(linears, rows, strict=True))
        return self.proj(merge(attend(q, k, v)))


class FirstRowFlat(FirstRow):
    """Answers (N, E)."""

    def forward(self, x):
        """Return (N, E)."""
        return super().forward(x)[:, 0]


class FirstRowTwice(FirstRow):
    """Takes the queries twice as large."""

    unscaled = 2.0


class FirstRowLeftOut(FirstRow):
    """Does not see the first row among the keys."""

    first_key = 1
