"""Multi-head attention in twelve lines: the formula alone, and the tutorial's function.

    output = Concat(head_1, ..., head_H)        head_h = softmax(Q_h K_h^T / sqrt(D)) V_h

Q (L, E), K (S, E) and V (S, E) are projected already; head h is their columns h*D to (h+1)*D, with
D = E / H. Nothing is checked and no mask is taken: `projected.multi_head_attention` checks the
same function's arguments, and `mha_numpy.attention` computes it with masks, for whole batches.
"""

from __future__ import annotations

import numpy as np

__all__ = ["attention"]


def attention(Q: np.ndarray, K: np.ndarray, V: np.ndarray, n_heads: int) -> np.ndarray:
    """Return the outputs of all heads side by side, (L, E)."""
    # (L, E) -> (H, L, D): the heads are blocks of columns.
    q, k, v = (np.stack(np.split(rows, n_heads, axis=-1)) for rows in (Q, K, V))
    # (H, L, S): each query's dot product with each key, over the root of the head's width.
    scores = q @ k.swapaxes(1, 2) / q.shape[-1] ** 0.5
    # Softmax over the keys. Any number may be subtracted from a row; its maximum keeps exp <= 1.
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    # (H, L, D) -> (L, E): the weighted means of the values, side by side.
    return np.concatenate(list(weights @ v), axis=-1)
