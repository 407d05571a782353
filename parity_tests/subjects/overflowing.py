"""A softmax that does not subtract the maximum, in the dtype of its inputs: float16 past 11."""

import numpy as np


def attention(Q, K, V, n_heads):
    q, k, v = (np.stack(np.split(rows, n_heads, axis=-1)) for rows in (Q, K, V))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]).astype(Q.dtype)
    weights = np.exp(scores)
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.concatenate(list(weights @ v), axis=-1)
