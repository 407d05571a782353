"""An attention that keeps the scale of its first call in its module."""

import numpy as np

_kept = []


def attention(Q, K, V, n_heads):
    """Divide the scores by the root of the head width that came first."""
    heads = [np.stack(np.split(rows, n_heads, axis=-1)) for rows in (Q, K, V)]
    _kept.append(np.sqrt(heads[0].shape[-1]).astype(Q.dtype))
    scores = heads[0] @ heads[1].swapaxes(1, 2) / _kept[0]
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return np.concatenate(list(weights @ heads[2]), axis=-1)
