"""The array type that annotations name, heads as an axis or side by side, softmax, log-sum-exp."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def split_heads(rows: Array, heads: int) -> Array:
    """Turn (N, S, H D) into (N, H, S, D)."""
    samples, length, width = rows.shape
    return rows.reshape(samples, length, heads, width // max(heads, 1)).swapaxes(1, 2)


def merge_heads(heads: Array) -> Array:
    """Turn (N, H, L, D) into (N, L, H D)."""
    samples, count, length, width = heads.shape
    return heads.swapaxes(1, 2).reshape(samples, length, count * width)


def softmax(scores: Array, axis: int = -1) -> Array:
    """Return exp(scores) divided by its sum along an axis; an axis may be empty."""
    powers = np.exp(scores - scores.max(axis=axis, keepdims=True, initial=-np.inf))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def log_sum_exp(scores: Array) -> Array:
    """Return log(sum(exp(scores))) along the last axis; -inf where all are, or where none is."""
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
        return np.asarray(largest[..., 0] + np.log(powers.sum(axis=-1)))
