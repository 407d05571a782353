"""NumPy layers as courses have them: masks of unknown meaning, one input, all four matrices."""

from __future__ import annotations

import numpy as np


def attend(q, k, v, heads, visible=None):
    """Return softmax(q k^T / sqrt(D)) v of (..., L, E) rows, heads side by side."""
    q, k, v = (rows.reshape(*rows.shape[:-1], heads, -1).swapaxes(-2, -3) for rows in (q, k, v))
    logits = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if visible is not None:
        logits = np.where(visible, logits, -1e9).astype(q.dtype)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    mixed = (weights / weights.sum(axis=-1, keepdims=True) @ v).swapaxes(-2, -3)
    return mixed.reshape(*mixed.shape[:-2], -1)


class WithMask:
    """Three inputs and a mask of what is visible, (N, L, S), whose name does not say so."""

    def __init__(self, d_model, num_heads):
        self.num_heads = num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = np.zeros((4, d_model, d_model))

    def forward(self, q, k, v, mask=None):
        """Return (N, L, E)."""
        rows = q @ self.W_q, k @ self.W_k, v @ self.W_v
        visible = None if mask is None else mask[..., None, :, :] != 0
        return attend(*rows, self.num_heads, visible) @ self.W_o


class ValuesFirst(WithMask):
    """The other way round."""

    def forward(self, values, keys, queries, mask=None):
        """Return (N, L, E)."""
        return super().forward(queries, keys, values, mask)


class MaskNeeded(WithMask):
    """Wants the mask, or None."""

    def forward(self, q, k, v, mask):
        """Return (N, L, E)."""
        return super().forward(q, k, v, mask)


class Called(WithMask):
    """Three inputs, and no method but the call."""

    forward = None

    def __call__(self, q, k, v):
        """Return (N, L, E)."""
        return WithMask.forward(self, q, k, v)


class OneInput(WithMask):
    """One input, called."""

    forward = None

    def __call__(self, x):
        """Return (N, L, E)."""
        return WithMask.forward(self, x, x, x)


class KeysTwice(OneInput):
    """Wrong on purpose: the values are projected as the keys are."""

    def __call__(self, x):
        """Return (N, L, E)."""
        self.W_v = self.W_k
        return super().__call__(x)


def masked(q, k, v, mask):
    """Return the attention of one head and its weights, with a mask that is added where there is one."""
    logits = q @ k.swapaxes(-1, -2) / np.sqrt(k.shape[-1])
    if mask is not None:
        logits = logits + mask * -1e9
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights @ v, weights


def values_first(V, K, Q):
    """Return the attention of one head, its arguments the other way round."""
    return attend(Q, K, V, 1)


def values_first_heads(v, k, q, n_heads):
    """Return the attention of several heads, its arguments the other way round."""
    return attend(q, k, v, n_heads)


def whole(x, W_q, W_k, W_v, W_o, n_heads):
    """Return the attention of x with all four matrices, applied as x @ W."""
    return attend(x @ W_q, x @ W_k, x @ W_v, n_heads) @ W_o


def without_output(x, W_q, W_k, W_v, W_o, n_heads):
    """Wrong on purpose: the output projection is forgotten."""
    return attend(x @ W_q, x @ W_k, x @ W_v, n_heads)


def packed(x, W_qkv, W_o, n_heads):
    """Return the attention of x with three matrices in one."""
    return attend(*np.split(x @ W_qkv, 3, axis=-1), n_heads) @ W_o
