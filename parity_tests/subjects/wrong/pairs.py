"""Wrong on purpose twice over: f(Q, K, V, n_heads) on batches or single sequences."""

from __future__ import annotations

import numpy as np

EXPECTED = {
    "unscaled_columns": "scale-none + softmax-query-axis",
    "model_scale_merged_badly": "scale-dmodel + merge-no-transpose",
    "strided_heads_without_max": "heads-interleaved + scale-linear",
    "sink_and_scale": "softmax-plus-one + scale-none",
    "base_two_and_split": "softmax-base2 + split-no-transpose",
}


def cut(x, n):
    """(T, E) to (n, T, E / n)."""
    return np.moveaxis(x.reshape(x.shape[0], n, -1), 1, 0)


def paste(x):
    return np.hstack(list(x))


def shares(z, axis=-1, base=np.e, sink=0):
    top = z.max(axis=axis, keepdims=True)
    odds = np.power(z.dtype.type(base), z - top)
    return odds / (odds.sum(axis=axis, keepdims=True) + sink * np.exp(-top))


def products(Q, K, V, n):
    q, k, v = (cut(x, n) for x in (Q, K, V))
    return np.einsum("hld,hsd->hls", q, k), v


def unscaled_columns(Q, K, V, n_heads):
    z, v = products(Q, K, V, n_heads)
    return paste(shares(z, axis=1) @ v)


def model_scale_merged_badly(Q, K, V, n_heads):
    z, v = products(Q, K, V, n_heads)
    z = z / z.dtype.type(np.sqrt(Q.shape[1]))
    return (shares(z) @ v).reshape(len(Q), -1)


def strided_heads_without_max(Q, K, V, n_heads):
    out = np.empty((len(Q), V.shape[1]), Q.dtype)
    for h in range(n_heads):
        q, k, v = (x[:, h::n_heads] for x in (Q, K, V))
        out[:, h::n_heads] = shares(q @ k.T / q.shape[1]) @ v
    return out


def sink_and_scale(Q, K, V, n_heads):
    z, v = products(Q, K, V, n_heads)
    return paste(shares(z, sink=1) @ v)


def base_two_and_split(Q, K, V, n_heads):
    q, k, v = (x.reshape(n_heads, len(x), -1) for x in (Q, K, V))
    z = q @ k.swapaxes(1, 2) / q.dtype.type(np.sqrt(q.shape[2]))
    return paste(shares(z, base=2) @ v)
