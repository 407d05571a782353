"""Functions of (N, H, L, D) that take fewer key heads, though no switch in their calls says so."""

from __future__ import annotations

import numpy as np


def normal(scores):
    exp = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


def groups_of(q, k):
    """Return q as (N, G, H / G, L, D) and its factor."""
    n, heads, rows, width = q.shape
    split = q.reshape(n, k.shape[1], heads // k.shape[1], rows, width)
    return split * q.dtype.type(width**-0.5)


def grouped(q, k, v):
    """Right: query heads g R … g R + R - 1 use key head g."""
    weights = normal(np.einsum("ngrld,ngsd->ngrls", groups_of(q, k), k))
    return np.einsum("ngrls,ngsd->ngrld", weights, v).reshape(*q.shape[:3], v.shape[-1])


def grouped_out_of_order(q, k, v):
    """Wrong: the output has the groups behind their query heads."""
    weights = normal(np.einsum("ngrld,ngsd->nrgls", groups_of(q, k), k))
    return np.einsum("nrgls,ngsd->nrgld", weights, v).reshape(*q.shape[:3], v.shape[-1])


def grouped_with_split_exchanged(q, k, v):
    """Wrong: query head h is read as one of group h % G, and the output is put in that order."""
    n, heads, rows, width = q.shape
    groups = k.shape[1]
    split = q.reshape(n, heads // groups, groups, rows, width).swapaxes(1, 2)
    return grouped(split.reshape(q.shape), k, v)


def grouped_kernel(query, key, value, scale=None):
    """Right, called as F.scaled_dot_product_attention is."""
    query = query if scale is None else query * query.dtype.type(scale * query.shape[-1] ** 0.5)
    return grouped(query, key, value)


def tiled_kernel(query, key, value, scale=None):
    """Wrong: query head h uses key head h % G."""
    times = query.shape[1] // key.shape[1]
    key, value = (np.tile(x, (1, times, 1, 1)) for x in (key, value))
    return grouped_kernel(query, key, value, scale)


def folded(q, k, v):
    """Right where heads are equal; fewer key heads are cut into shorter ones, and answered."""
    n, heads, rows, width = q.shape
    q, k, v = (x.reshape(n * heads, -1, x.shape[-1]) for x in (q, k, v))
    weights = normal(q @ k.swapaxes(1, 2) * q.dtype.type(width**-0.5))
    return (weights @ v).reshape(n, heads, rows, v.shape[-1])


def equal_heads(q, k, v):
    """Right where heads are equal; fewer key heads raise."""
    n, heads, rows, width = q.shape
    weights = normal(q @ k.swapaxes(-1, -2) * q.dtype.type(width**-0.5))
    return (weights @ v).reshape(n, heads, rows, -1)


def repeated(q, k, v):
    """Right for (N, H, L, D); of (H, L, D) lengths are taken for heads."""
    k, v = (x.repeat(q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    return normal(q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)) @ v


def documented_tiles(query, key, value, scale=None):
    """Query head h reads the key head h % num_kv_heads."""
    return tiled_kernel(query, key, value, scale)


def documented_otherwise(query, key, value, scale=None):
    """Query head h reads the key head h % num_kv_heads, which it does not do."""
    return grouped_kernel(query, key[:, ::-1], value[:, ::-1], scale)
