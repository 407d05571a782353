"""The array type that annotations name, and heads as an axis or side by side."""

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
