"""Functions of one sequence whose helpers read all sizes of the module, the length too."""

import numpy as np

T, d_model, n_head = 5, 8, 4
d_head = d_model // n_head
other_heads, TILE = 3, 4


def split_heads(x):
    return x.reshape(T, n_head, d_head).transpose(1, 0, 2)


def merge_heads(x):
    return x.transpose(1, 0, 2).reshape(T, d_model)


def _attend(q, k, v, scale):
    scores = q @ k.transpose(0, 2, 1) * scale
    scores = np.where(np.triu(np.ones((T, T), dtype=bool), k=1), -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def right(X, Wq, Wk, Wv, Wo):
    """Right."""
    q, k, v = (split_heads(X @ W) for W in (Wq, Wk, Wv))
    return merge_heads(_attend(q, k, v, d_head**-0.5)) @ Wo


def scaled_by_the_width(X, Wq, Wk, Wv, Wo):
    """Wrong: by the width of all heads."""
    q, k, v = (split_heads(X @ W) for W in (Wq, Wk, Wv))
    return merge_heads(_attend(q, k, v, d_model**-0.5)) @ Wo


def of_one_head(Q, K, V):
    """Right: one head, of as many rows as the module says."""
    return _attend(Q[None], K[None], V[None], d_model**-0.5)[0]


def by_tiles(q, k, v):
    """Reads the size of a tile, which is no length."""
    return np.concatenate([q[i : i + TILE] @ k.T @ v for i in range(0, len(q), TILE)])


def contradicting(x):
    """Reads heads and widths that do not fit."""
    return x.reshape(-1, other_heads, d_head), d_model
