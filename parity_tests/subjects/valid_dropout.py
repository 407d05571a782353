"""A layer over valid lengths that has dropout and modes, right and with one slip."""

from __future__ import annotations

import numpy as np
from valid_lengths import Attention, attend


class Dropping(Attention):
    """Drops weights in training; what drops is drawn anew in each call."""

    def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
        super().__init__(num_hiddens, num_heads, dropout, bias)
        self.training = True
        self.rng = np.random.default_rng()

    def train(self):
        """Drop from now on."""
        self.training = True

    def eval(self):
        """Drop nothing from now on."""
        self.training = False

    def forward(self, queries, keys, values, valid_lens):
        """Return (N, L, E)."""
        q = self.split(queries @ self.W_q + self.b_q)
        k = self.split(keys @ self.W_k + self.b_k)
        v = self.split(values @ self.W_v + self.b_v)
        seen = np.eye(k.shape[2], dtype=k.dtype)
        weights = attend(q, k, np.broadcast_to(seen, (*k.shape[:2], *seen.shape)), valid_lens)
        if self.training and self.dropout:
            weights = weights * self.drawn(weights.shape)
        merged = (weights @ v).swapaxes(1, 2).reshape(queries.shape)
        return (merged @ self.W_o + self.b_o).astype(self.W_o.dtype)

    def drawn(self, shape):
        """Return 0 where a weight goes, and what makes up for it elsewhere."""
        kept = self.rng.random(shape) >= self.dropout
        return kept / (1 - self.dropout) if self.dropout < 1 else kept


class Negates(Dropping):
    """Drops a share of 1 - p."""

    def drawn(self, shape):
        """Keep where it should drop."""
        return (self.rng.random(shape) < self.dropout) / (1 - self.dropout)
