"""Wrong on purpose: scores are scaled by the width of the model and not of a head."""

from __future__ import annotations

import numpy as np


def f(Q, K, V, n_heads):
    """Attend with several heads, logits divided by sqrt(d_model)."""
    length, d_model = Q.shape
    heads = [a.reshape(len(a), n_heads, -1).swapaxes(0, 1) for a in (Q, K, V)]
    logits = heads[0] @ heads[1].swapaxes(1, 2) / np.sqrt(d_model)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return (weights @ heads[2]).swapaxes(0, 1).reshape(length, -1)
