"""Layers of NumPy whose constructors take the arrays, and functions on heads that are split."""

from __future__ import annotations

import numpy as np


def softmax(scores):
    """Return weights that sum to 1 along the last axis."""
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def of_heads(q, k, v, scale):
    """Return the attention of (N, L, H, D), in the same layout."""
    return np.einsum("nhls,nshd->nlhd", softmax(np.einsum("nlhd,nshd->nhls", q, k) * scale), v)


class ByTorchsNames:
    """Takes the packed array that torch has, and splits it."""

    order = (0, 1, 2)

    def __init__(self, embed_dim, num_heads, in_proj_weight, in_proj_bias, out_weight, out_bias):
        self.dim, self.h = embed_dim, num_heads
        self.W = np.split(in_proj_weight, 3)
        self.b = np.split(in_proj_bias, 3)
        self.Wo, self.bo = out_weight, out_bias

    def forward(self, query, key, value):
        """Return (N, L, E)."""
        rows = (query, key, value)
        q, k, v = (
            (x @ self.W[i].T + self.b[i]).reshape(*x.shape[:2], self.h, -1)
            for x, i in zip(rows, self.order, strict=True)
        )
        heads = of_heads(q, k, v, (self.dim // self.h) ** -0.5)
        return heads.reshape(query.shape) @ self.Wo.T + self.bo


class KeysAndValuesCrossed(ByTorchsNames):
    """Projects keys by the rows of the values."""

    order = (0, 2, 1)


class OneKernel:
    """Columns of its packed kernel lie head by head, channel by channel."""

    def __init__(self, kernel, bias, out_kernel, out_bias, heads):
        self.kernel, self.bias = kernel, bias
        self.out_kernel, self.out_bias = out_kernel, out_bias
        self.heads = heads

    def __call__(self, x):
        """Return (N, L, E)."""
        split = (x @ self.kernel + self.bias).reshape(*x.shape[:2], self.heads, -1, 3)
        q, k, v = np.moveaxis(split, -1, 0)
        merged = of_heads(q, k, v, q.shape[-1] ** -0.5).reshape(x.shape)
        return merged @ self.out_kernel + self.out_bias


def rows_of_heads(*, values, keys, queries, bias=None):
    """Return (N, L, H, D), every argument by keyword; the bias is added to the scores."""
    scores = np.einsum("nlhd,nshd->nhls", queries, keys) / np.sqrt(queries.shape[-1])
    return np.einsum("nhls,nshd->nlhd", softmax(scores if bias is None else scores + bias), values)


def rows_of_heads_unscaled(queries, keys, values):
    """Forget the scale."""
    return of_heads(queries, keys, values, 1.0)


def with_probability(query, key, value, attn_bias=None, p=0.0, scale=None):
    """Return (N, L, H, D); ``p`` is a probability, and no tuple of weights that is unpacked."""
    if p > 0:
        raise NotImplementedError
    query, key, value = (x.swapaxes(1, 2) for x in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.swapaxes(-1, -2) * scale
    return (softmax(scores if attn_bias is None else scores + attn_bias) @ value).swapaxes(1, 2)


def with_probability_unscaled(query, key, value, attn_bias=None, p=0.0):
    """Forget the scale."""
    return with_probability(query, key, value, attn_bias, p, 1.0)


def first_keys(q, k, v):
    """Use the keys of the first head for all heads; arrays (N, L, D) have one head, and are right."""
    keys = k[:, :1] if k.ndim == 4 else k
    return softmax(q @ keys.swapaxes(-1, -2) * q.shape[-1] ** -0.5) @ v


def transposed_by_name(x, memory, Wq_t, bq, Wk_t, Wv_t, bv, Wo_t, bo, n_heads):
    """Right, of (L, E): weights (out, in), whose names say so, and no bias of keys."""
    q, k, v = x @ Wq_t.T + bq, memory @ Wk_t.T, memory @ Wv_t.T + bv
    q, k, v = (rows.reshape(1, len(rows), n_heads, -1) for rows in (q, k, v))
    heads = of_heads(q, k, v, q.dtype.type(q.shape[-1] ** -0.5))
    return heads.reshape(len(x), -1) @ Wo_t.T + bo


def unknown_among_biases(x, Wq, bq, Wk, Wv, bv, W_second, W_third, n_heads):
    """Two weights have names that say nothing: both cannot be the output's."""
    return transposed_by_name(x, x, Wq, bq, Wk, Wv, bv, W_second @ W_third, 0, n_heads)


def numbered(q, k, v, layer_number):
    """Return attention of heads; what a number does no call tries."""
    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    return softmax(scores if layer_number is None else scores * layer_number) @ v


def unmoved(q, k, v, num_heads, mask=None):
    """Wrong, of (N, L, E): the heads are merged as they lie, (N, H, L, D)."""
    split = [x.reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2) for x in (q, k, v)]
    scores = split[0] @ split[1].swapaxes(-1, -2) * split[0].shape[-1] ** -0.5
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    return (softmax(scores) @ split[2]).reshape(q.shape)


def width_first(x, Wq, Wk, Wv, Wo, num_heads):
    """Wrong, of (N, L, E) and X @ W: the heads are merged with the width before the head."""
    q, k, v = ((x @ w).reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2) for w in (Wq, Wk, Wv))
    heads = softmax(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5) @ v
    return heads.transpose(0, 2, 3, 1).reshape(x.shape) @ Wo
