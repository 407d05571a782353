"""Functions of one sample that get the number of visible keys as a single number."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from functions_of_weights import attend, merge, split


def normal(scores):
    exp = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


def visible(q, k, v, num_heads, valid_len=None):
    """Right: keys from `valid_len` on are hidden."""
    keys = slice(valid_len)
    return merge(attend(split(q, num_heads), split(k[keys], num_heads), split(v[keys], num_heads)))


def one_too_many(q, k, v, num_heads, valid_len=None):
    """Wrong: one key more is visible."""
    return visible(q, k, v, num_heads, None if valid_len is None else valid_len + 1)


@lru_cache(maxsize=64)
def future(length):
    """Return which keys lie behind each query."""
    return np.triu(np.ones((length, length), dtype=bool), k=1)


def causal(q, k, v, num_heads, valid=None, *, copies=True):
    """Right: hides the future, and keys from `valid` on."""
    hidden = future(len(q))
    hidden = hidden.copy() if copies else hidden
    if valid is not None:
        hidden[:, valid:] = True
    q, k, v = (split(x, num_heads) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return merge(normal(np.where(hidden, -np.inf, scores)) @ v)


def causal_in_the_cache(q, k, v, num_heads, valid=None):
    """Wrong: padding is written into the mask that later calls of this length read."""
    return causal(q, k, v, num_heads, valid, copies=False)


def of_heads(q, k, v, valid_len=None):
    """Right: (H, L, D), keys from `valid_len` on are hidden in all heads."""
    return attend(q, k[:, :valid_len], v[:, :valid_len])


def of_heads_one_too_many(q, k, v, valid_len=None):
    """Wrong: one key more is visible."""
    return of_heads(q, k, v, None if valid_len is None else valid_len + 1)


def beside_a_mask(q, k, v, num_heads, key_padding_mask=None, valid_len=None):
    """Right: (N, L, E); `key_padding_mask` (N, S) and `valid_len`, of all samples, hide keys."""
    q, k, v = (split(x, num_heads) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if key_padding_mask is not None:
        scores = np.where(key_padding_mask[:, None, None], -np.inf, scores)
    if valid_len is not None:
        scores[..., valid_len:] = -np.inf
    return merge(normal(scores) @ v)


def beside_a_mask_one_too_many(q, k, v, num_heads, key_padding_mask=None, valid_len=None):
    """Wrong: one key more is visible."""
    more = None if valid_len is None else valid_len + 1
    return beside_a_mask(q, k, v, num_heads, key_padding_mask, more)
