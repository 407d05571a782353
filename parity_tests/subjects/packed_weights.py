"""Self-attention from X and its three weight matrices; heads are blocks of their columns."""

from __future__ import annotations

import numpy as np


def single_head(X, Wq, Wk, Wv):
    """Return the context vectors of one head and its weights."""
    q, k, v = X @ Wq, X @ Wk, X @ Wv
    logits = q @ k.T / np.sqrt(k.shape[1])
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights @ v, weights


def f(X, Wq, Wk, Wv, H):
    """Return all heads side by side, and the list of their weights."""
    blocks = [np.split(W, H, axis=1) for W in (Wq, Wk, Wv)]
    heads = [single_head(X, *of_head) for of_head in zip(*blocks)]
    return np.concatenate([out for out, _ in heads], axis=1), [w for _, w in heads]
