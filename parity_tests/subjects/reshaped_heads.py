"""Functions whose products are reshaped to (H, L, D): of whole weights, and of those of each head."""

import numpy as np


def _softmax(scores):
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return scores / scores.sum(axis=-1, keepdims=True)


def whole_weights(x, W_q, W_k, W_v, W_o, num_heads):
    """Return (L, E). Wrong on purpose: the axis of heads is none of the last axis of x @ W."""
    length, width = x.shape
    head_dim = width // num_heads
    q, k, v = ((x @ w).reshape(num_heads, length, head_dim) for w in (W_q, W_k, W_v))
    weights = _softmax(q @ k.transpose(0, 2, 1) / np.sqrt(head_dim))
    return (weights @ v).transpose(1, 0, 2).reshape(length, width) @ W_o


def of_each_head(x, W_q, W_k, W_v, W_o, num_heads):
    """Return (L, E); W_q, W_k and W_v hold a matrix (E, D) for each of num_heads heads."""
    q, k, v = (np.stack([x @ one for one in w]) for w in (W_q, W_k, W_v))
    weights = _softmax(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]))
    assert len(q) == num_heads
    return (weights @ v).transpose(1, 0, 2).reshape(len(x), -1) @ W_o
