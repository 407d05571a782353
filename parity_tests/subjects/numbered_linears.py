"""Layers whose Linears have numbers for names, as flax gives them: of q, of k and v, and of out."""

from __future__ import annotations

from torch import nn


class QueryThenBoth(nn.Module):
    """Right: the second Linear holds the keys, then the values."""

    def __init__(self, dim, heads=8):
        super().__init__()
        self.heads = heads
        widths = (dim, 2 * dim, dim)
        self.dense = nn.ModuleList(nn.Linear(dim, width, bias=False) for width in widths)

    def parts(self, rows):
        """Return keys and values of the rows of both."""
        return rows.chunk(2, dim=-1)

    def forward(self, x, context=None):
        """Return (B, T, E)."""
        first, second, last = self.dense
        rows = (first(x), *self.parts(second(x if context is None else context)))
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in rows)
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        return last((weights @ v).transpose(1, 2).flatten(2))


class LateKeysExchanged(QueryThenBoth):
    """Wrong: beyond eight rows the keys are the values."""

    def parts(self, rows):
        """Return keys and values of the rows of both."""
        keys, values = rows.chunk(2, dim=-1)
        return (keys if rows.shape[1] <= 8 else values), values
