"""Wrong in ways that are not in the catalogue: no name may be given with confidence."""

from __future__ import annotations

import numpy as np

UNKNOWN = ("square", "sorted_keys", "cubed", "shifted_rows", "weird_scale", "swapped_channels")


def soft(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def split(x, n):
    return x.reshape(len(x), n, -1).transpose(1, 0, 2)


def parts(Q, K, V, n_heads):
    q, k, v = (split(x, n_heads) for x in (Q, K, V))
    return q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]), v


def back(x):
    return x.transpose(1, 0, 2).reshape(x.shape[1], -1)


def square(Q, K, V, n_heads):
    z, v = parts(Q, K, V, n_heads)
    return back(z**2 / (z**2).sum(-1, keepdims=True) @ v)


def sorted_keys(Q, K, V, n_heads):
    z, v = parts(Q, K, V, n_heads)
    return back(np.sort(soft(z), axis=-1) @ v)


def cubed(Q, K, V, n_heads):
    z, v = parts(Q, K, V, n_heads)
    p = soft(z) ** 3
    return back(p / p.sum(-1, keepdims=True) * 1.1 @ v)


def shifted_rows(Q, K, V, n_heads):
    z, v = parts(Q, K, V, n_heads)
    return np.roll(back(soft(z) @ v), 1, axis=0)


def weird_scale(Q, K, V, n_heads):
    z, v = parts(Q, K, V, n_heads)
    return back(soft(0.77 * z) @ v)


def swapped_channels(Q, K, V, n_heads):
    z, v = parts(Q, K, V, n_heads)
    return back(soft(z) @ v)[:, ::-1]
