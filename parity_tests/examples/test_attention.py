"""A test as a user writes it: one line asserts parity with torch."""

import numpy as np

from mha_parity import assert_parity


def attention(Q, K, V, n_heads):
    q, k, v = (np.stack(np.split(rows, n_heads, axis=-1)) for rows in (Q, K, V))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]).astype(Q.dtype)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.concatenate(list(weights @ v), axis=-1)


def test_attention_equals_torch():
    assert_parity(attention, cases=100)
