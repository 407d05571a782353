"""A layer over one sequence with a mask of what to keep: once by a loop, once for all heads."""

from __future__ import annotations

import numpy as np


def attend(Q, K, V, mask=None):
    """Return output and weights of one head or of a stack of heads; mask 0 = hidden."""
    logits = Q @ K.swapaxes(-1, -2) / np.sqrt(K.shape[-1])
    if mask is not None:
        logits = np.where(mask == 0, -1e9, logits)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights @ V, weights


class Looped:
    """Heads one after the other."""

    def __init__(self, d_model, num_heads):
        self.num_heads = num_heads
        rng = np.random.default_rng(0)
        draw = lambda: 0.1 * rng.standard_normal((d_model, d_model))  # noqa: E731
        self.W_Q, self.W_K, self.W_V, self.W_O = draw(), draw(), draw(), draw()

    def heads(self, rows):
        """Return (T, E) as (H, T, D)."""
        return np.stack(np.split(rows, self.num_heads, axis=1))

    def forward(self, X, mask=None):
        """Return (T, E) and the weights of every head, (H, T, T)."""
        parts = zip(*(self.heads(X @ W) for W in (self.W_Q, self.W_K, self.W_V)))
        done = [attend(q, k, v, mask) for q, k, v in parts]
        merged = np.concatenate([out for out, _ in done], axis=1)
        return merged @ self.W_O, np.stack([weights for _, weights in done])


class Stacked(Looped):
    """All heads in one product."""

    def forward(self, X, mask=None):
        """Return (T, E) and the weights of every head, (H, T, T)."""
        q, k, v = (self.heads(X @ W) for W in (self.W_Q, self.W_K, self.W_V))
        out, weights = attend(q, k, v, mask)
        return np.hstack(list(out)) @ self.W_O, weights


class ByName(Stacked):
    """The mask is passed by its name alone."""

    def forward(self, X, *, mask=None):
        """Return (T, E) and the weights of every head, (H, T, T)."""
        return super().forward(X, mask)


class Ignored(Stacked):
    """Wrong on purpose: such a mask is not read."""

    def forward(self, X, *, mask=None):
        """Return (T, E) and the weights of every head, (H, T, T)."""
        return super().forward(X)


def build(d_model, num_heads):
    """Return a layer: not its class, so that the way of calling it has to be named."""
    return Stacked(d_model, num_heads)
