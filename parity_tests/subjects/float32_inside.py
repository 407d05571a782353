"""Attentions that lose half of the digits of what they are given, as many libraries do."""

from __future__ import annotations

import numpy as np
import torch


def _softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _heads(Q, K, V, n_heads, scale=None):
    q, k, v = (np.stack(np.split(a, n_heads, axis=-1)) for a in (Q, K, V))
    scale = np.float32(q.shape[-1] ** -0.5 if scale is None else scale)
    return np.concatenate(list(_softmax(q @ k.swapaxes(-1, -2) * scale) @ v), axis=-1)


def projected(Q, K, V, n_heads):
    """Cast Q, K and V to float32 and answer in float32."""
    return _heads(*(a.astype(np.float32) for a in (Q, K, V)), n_heads)


def with_weights(X, Wq, Wk, Wv, H):
    """Cast inputs and weights to float32 and answer in float32."""
    x, *weights = (a.astype(np.float32) for a in (X, Wq, Wk, Wv))
    return _heads(*(x @ w for w in weights), H)


def by_torch(Q, K, V, n_heads):
    """Compute with torch's float32 tensors."""
    q, k, v = (
        torch.tensor(a.astype(np.float32)).reshape(len(a), n_heads, -1).transpose(0, 1)
        for a in (Q, K, V)
    )
    heads = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return heads.transpose(0, 1).reshape(len(Q), -1).numpy()


def one_head(Q, K, V):
    """One head in float32."""
    return _heads(*(a.astype(np.float32) for a in (Q, K, V)), 1)


def wrong_scale(Q, K, V, n_heads):
    """Compute in float32 with the scale of the whole width."""
    return _heads(*(a.astype(np.float32) for a in (Q, K, V)), n_heads, Q.shape[-1] ** -0.5)


def cast_back(Q, K, V, n_heads):
    """Compute in float32 and return the dtype of the inputs."""
    return projected(Q, K, V, n_heads).astype(Q.dtype)


def softmax_cast_back(Q, K, V, n_heads):
    """Take the softmax of float64 in float32, the rest in the dtype of the inputs."""
    q, k, v = (np.stack(np.split(a, n_heads, axis=-1)) for a in (Q, K, V))
    scores = q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)
    weights = _softmax(scores.astype(np.float32)).astype(Q.dtype)
    return np.concatenate(list(weights @ v), axis=-1)


def by_distances(q, k, v):
    """Computed in the inputs' dtype: scores as differences of squares, which lose digits."""
    squares = [(x * x).sum(axis=-1) for x in (q[..., :, None, :] - k[..., None, :, :], k)]
    scores = (squares[1][..., None, :] - squares[0]) / (2 * np.sqrt(q.shape[-1]))
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True) @ v


def sums_in_half(Q, K, V, n_heads, tile=16):
    """Wrong on purpose: it computes in float32, and sums the weighted values in float16."""
    q, k, v = (np.stack(np.split(a.astype(np.float32), n_heads, axis=-1)) for a in (Q, K, V))
    top = np.full(q.shape[:-1] + (1,), -np.inf, np.float32)
    total, output = np.zeros_like(top), np.zeros(q.shape, np.float16)
    for start in range(0, k.shape[1], tile):
        scores = q @ k[:, start : start + tile].swapaxes(1, 2) / np.float32(np.sqrt(q.shape[-1]))
        higher = np.maximum(top, scores.max(axis=-1, keepdims=True))
        powers, factor = np.exp(scores - higher), np.exp(top - higher)
        total = total * factor + powers.sum(axis=-1, keepdims=True)
        output = (output * factor + powers @ v[:, start : start + tile]).astype(np.float16)
        top = higher
    return np.concatenate(list(output / total), axis=-1)


def softmax_and_later_keys(q, k, v):
    """Wrong on purpose: a softmax of fewer digits, and of more than 32 keys the last is left out."""
    scores = q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)
    if k.shape[-2] > 32:
        scores, v = scores[..., :-1], v[..., :-1, :]
    return _softmax(scores.astype(np.float32)).astype(q.dtype) @ v


def softmax_and_whole_slices(query, key, value, slice_size=4):
    """Wrong on purpose: a softmax of fewer digits, and slices of heads beyond a whole number stay 0."""
    q, k, v = (x.flatten(0, 1) for x in (query, key, value))
    out = torch.zeros_like(q[..., :1].expand(*q.shape[:2], v.shape[-1]))
    size = min(slice_size, len(q))
    for i in range(len(q) // size):
        part = slice(i * size, (i + 1) * size)
        scores = q[part] @ k[part].mT * q.shape[-1] ** -0.5
        out[part] = scores.softmax(dim=-1, dtype=torch.float32).to(q.dtype) @ v[part]
    return out.unflatten(0, query.shape[:2])


def autocast_of_float32(query, key, value):
    """Wrong on purpose: the products of float32 are taken in bfloat16, as autocast does."""
    q, k = (x.bfloat16() if x.dtype == torch.float32 else x for x in (query, key))
    scores = (q @ k.mT).to(query.dtype) * query.shape[-1] ** -0.5
    return scores.softmax(dim=-1) @ value
