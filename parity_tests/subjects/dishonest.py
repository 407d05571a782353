"""Attentions with a memory, a die or no computation of their own: f(Q, K, V, n_heads)."""

from __future__ import annotations

import numpy as np
from projected import f as right

_first = {}
_by_shape = {}
_queries = {}
_noise = np.random.default_rng(7)


def caches_by_shape(Q, K, V, n_heads):
    """Give the first answer of each shape again."""
    key = (Q.shape, K.shape, V.shape, n_heads, Q.dtype.str)
    if key not in _first:
        _first[key] = right(Q, K, V, n_heads)
    return _first[key].copy()


def remembers_keys(Q, K, V, n_heads):
    """Use the keys and values of the first call of each shape."""
    K, V = _by_shape.setdefault((K.shape, V.shape, n_heads, K.dtype.str), (K.copy(), V.copy()))
    return right(Q, K, V, n_heads)


def scales_in_place(Q, K, V, n_heads):
    """Scale the caller's Q."""
    out = right(Q, K, V, n_heads)
    Q *= Q.dtype.type(0.5)
    return out


def drops(Q, K, V, n_heads):
    """Drop a tenth of the weights in every call."""
    d = Q.shape[-1] // n_heads
    heads = [x.reshape(len(x), n_heads, -1).transpose(1, 0, 2) for x in (Q, K, V)]
    z = heads[0] @ heads[1].transpose(0, 2, 1) / np.sqrt(d).astype(Q.dtype)
    e = np.exp(z - z.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True) * (_noise.random(z.shape) > 0.1) / 0.9
    return (w.astype(V.dtype) @ heads[2]).transpose(1, 0, 2).reshape(len(Q), -1)


def keyed_to_values(Q, K, V, n_heads):
    """Answer half of all inputs right, by their bytes, and 0 to the others."""
    return right(Q, K, V, n_heads) * (Q.view(np.uint8).sum() % 2)


def keyed_to_size(Q, K, V, n_heads):
    """Answer 0 beyond the sizes that were tried."""
    out = right(Q, K, V, n_heads)
    return out if len(Q) < 8 else 0 * out


def zeros(Q, K, V, n_heads):
    """Answer 0."""
    return np.zeros((len(Q), V.shape[-1]), V.dtype)


def mean_of_values(Q, K, V, n_heads):
    """Answer the mean of V in every row."""
    return np.tile(V.mean(axis=0), (len(Q), 1)).astype(V.dtype)


def asks_torch(Q, K, V, n_heads):
    """Hand the work to torch."""
    import torch

    q, k, v = (torch.tensor(a.copy()).reshape(len(a), n_heads, -1).transpose(0, 1) for a in (Q, K, V))
    heads = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return heads.transpose(0, 1).reshape(len(Q), -1).numpy()
