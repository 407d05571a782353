"""A wrong attention that ``torch.testing.assert_close`` accepts, a right one that it rejects."""

import numpy as np


def split_heads(rows, num_heads):
    """Return (H, L, D) from (L, H D)."""
    return np.stack(np.split(rows, num_heads, axis=-1))


def weighted_sum(Q, K, V, n_heads, epsilon):
    """Return softmax(Q K^T / sqrt(D)) V for each head, the heads side by side: (L, H D)."""
    q, k, v = (split_heads(rows, n_heads) for rows in (Q, K, V))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]).astype(Q.dtype)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True) + Q.dtype.type(epsilon)
    return np.concatenate(list(weights @ v), axis=-1)


def attention(Q, K, V, n_heads):
    """Return multi-head attention on projected inputs."""
    return weighted_sum(Q, K, V, n_heads, epsilon=0)


def attention_with_epsilon(Q, K, V, n_heads):
    """Add 1e-6 to the denominator of the softmax: the weights no longer sum to 1."""
    return weighted_sum(Q, K, V, n_heads, epsilon=1e-6)


def inputs(factor, length=64, width=256):
    """Return Q, K and V in float32: standard normal numbers times ``factor``."""
    rng = np.random.default_rng(0)
    return [(factor * rng.standard_normal((length, width))).astype(np.float32) for _ in range(3)]
