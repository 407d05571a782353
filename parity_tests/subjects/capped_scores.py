"""Wrong on purpose, but for ``uncapped`` and ``Uncapped``: tanh caps the scores, unasked."""

from __future__ import annotations

import numpy as np
from torch import nn


def _attend(Q, K, V, n_heads, bend):
    q, k, v = (np.stack(np.split(x, n_heads, axis=-1), axis=-3) for x in (Q, K, V))
    z = bend(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return np.concatenate(list(np.moveaxis(e / e.sum(axis=-1, keepdims=True) @ v, -3, 0)), axis=-1)


def capped(Q, K, V, n_heads):
    """Cap the scores at 30."""
    return _attend(Q, K, V, n_heads, lambda z: 30 * np.tanh(z / 30))


def capped_low(Q, K, V, n_heads):
    """Cap the scores at 2, which bends the usual ones."""
    return _attend(Q, K, V, n_heads, lambda z: 2 * np.tanh(z / 2))


def uncapped(Q, K, V, n_heads):
    """Leave the scores as they are: right."""
    return _attend(Q, K, V, n_heads, lambda z: z)


class Capped(nn.Module):
    """Linear layers of torch whose scores are capped."""

    cap = 50.0

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, x, mask=None):
        """Return (N, L, E); False in the mask hides."""
        parts = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (f(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for f in parts)
        z = q @ k.mT / q.shape[-1] ** 0.5
        if self.cap:
            z = self.cap * (z / self.cap).tanh()
        if mask is not None:
            z = z.masked_fill(mask == 0, float("-inf"))
        return self.out_proj((z.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


class CappedLow(Capped):
    """At a cap that bends the usual scores."""

    cap = 1.5


class Uncapped(Capped):
    """Right: the scores stay as they are."""

    cap = 0.0


class CappedHeads:
    """NumPy, (Q, K, V) with masks, heads in the constructor."""

    cap = 30.0

    def __init__(self, num_heads):
        self.num_heads = num_heads

    def __call__(self, query, key, value, attn_mask=None):
        """Return (N, L, E); True in the mask hides."""
        return _attend(
            query, key, value, self.num_heads,
            lambda z: self._masked(self.cap * np.tanh(z / self.cap), attn_mask),
        )  # fmt: skip

    def _masked(self, z, mask):
        return z if mask is None else np.where(mask, -np.inf, z)


class Unnamed(nn.Module):
    """Linear layers whose names do not say what they project."""

    cap = 40.0

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second, self.third = (nn.Linear(width, width) for _ in range(3))

    def scores(self, q, k):
        """Return the capped scores."""
        z = q @ k.mT / q.shape[-1] ** 0.5
        return self.cap * (z / self.cap).tanh()

    def forward(self, x):
        """Return (N, L, E)."""
        parts = (self.first, self.second, self.third)
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in parts)
        return (self.scores(q, k).softmax(dim=-1) @ v).transpose(1, 2).flatten(2)


class UnnamedActivated(Unnamed):
    """No attention of torch: the projections are activated, not the scores."""

    def scores(self, q, k):
        """Return the scores of activated rows."""
        return q.tanh() @ k.tanh().mT / q.shape[-1] ** 0.5


class Activated(Capped):
    """No attention of torch: the projections are activated, not the scores."""

    def forward(self, x, mask=None):
        """Return (N, L, E)."""
        parts = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (f(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for f in parts)
        z = q.tanh() @ k.tanh().mT / q.shape[-1] ** 0.5
        return self.out_proj((z.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))
