"""Wrong on purpose, written with loops over heads, queries and keys: f(Q, K, V, n_heads)."""

from __future__ import annotations

import math

import numpy as np

EXPECTED = {
    "no_scale": "scale-none",
    "model_scale": "scale-dmodel",
    "columns": "softmax-query-axis",
    "forgot_last_key": "last-key-unseen",
    "dealt_out": "heads-interleaved",
    "stuck": "head-stuck",
    "no_normaliser": "softmax-unnormalised",
    "extra_sink": "softmax-plus-one",
    "padded_epsilon": "softmax-add-eps",
    "linear_scale": "scale-linear",
    "average": "mean-pooling",
    "blank": "zeros-returned",
}


def dot(a, b):
    total = a[0] * 0
    for x, y in zip(a, b):
        total = total + x * y
    return total


def run(Q, K, V, n_heads, score, to_weights, pick=None):
    """Attend head by head, row by row."""
    T, width = Q.shape
    d, dv = width // n_heads, V.shape[1] // n_heads
    pick = pick or (lambda array, h, size: array[:, h * size : (h + 1) * size])
    out = np.zeros((T, V.shape[1]), dtype=Q.dtype)
    for h in range(n_heads):
        q, k, v = pick(Q, h, d), pick(K, h, d), pick(V, h, dv)
        for i in range(T):
            row = [score(q[i], k[j], i, j, d, width) for j in range(len(k))]
            w = to_weights(row)
            acc = np.zeros(v.shape[1], dtype=Q.dtype)
            for j, weight in enumerate(w):
                acc += weight * v[j]
            out[i, h * dv : (h + 1) * dv] = acc
    return out


def soft(row):
    top = max(row)
    e = [np.exp(z - top) for z in row]
    return [x / sum(e) for x in e]


def usual(a, b, i, j, d, width):
    return dot(a, b) / math.sqrt(d)


def no_scale(Q, K, V, n_heads):
    return run(Q, K, V, n_heads, lambda a, b, *rest: dot(a, b), soft)


def model_scale(Q, K, V, n_heads):
    return run(Q, K, V, n_heads, lambda a, b, i, j, d, w: dot(a, b) / math.sqrt(w), soft)


def linear_scale(Q, K, V, n_heads):
    return run(Q, K, V, n_heads, lambda a, b, i, j, d, w: dot(a, b) / d, soft)


def columns(Q, K, V, n_heads):
    T, width = Q.shape
    d = width // n_heads
    parts = []
    for h in range(n_heads):
        cut = slice(h * d, h * d + d)
        z = np.array([[dot(Q[i, cut], K[j, cut]) for j in range(T)] for i in range(T)])
        z = z / math.sqrt(d)
        for j in range(T):
            z[:, j] = soft(list(z[:, j]))
        parts.append(z @ V[:, cut])
    return np.hstack(parts)


def forgot_last_key(Q, K, V, n_heads):
    return run(Q, K, V, n_heads, usual, lambda row: soft(row[:-1] or row))


def dealt_out(Q, K, V, n_heads):
    strided = lambda array, h, size: array[:, h::n_heads]
    cut = run(Q, K, V, n_heads, usual, soft, strided)
    back = np.empty_like(cut)
    d = cut.shape[1] // n_heads
    for h in range(n_heads):
        back[:, h::n_heads] = cut[:, h * d : (h + 1) * d]
    return back


def stuck(Q, K, V, n_heads):
    return run(Q, K, V, n_heads, usual, soft, lambda array, h, size: array[:, :size])


def no_normaliser(Q, K, V, n_heads):
    return run(Q, K, V, n_heads, usual, lambda row: [np.exp(z - max(row)) for z in row])


def extra_sink(Q, K, V, n_heads):
    return run(Q, K, V, n_heads, usual, lambda row: soft([*row, row[0] * 0])[:-1])


def padded_epsilon(Q, K, V, n_heads):
    def to_weights(row):
        e = [np.exp(z - max(row)) for z in row]
        return [x / (sum(e) + 1e-6) for x in e]

    return run(Q, K, V, n_heads, usual, to_weights)


def average(Q, K, V, n_heads):
    T, _ = Q.shape
    return np.array([V.mean(axis=0)] * T, dtype=Q.dtype).reshape(T, -1)


def blank(Q, K, V, n_heads):
    return np.zeros((len(Q), V.shape[1]), dtype=Q.dtype)
