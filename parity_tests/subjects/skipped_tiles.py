"""Kernels over tiles of keys that skip some, wrong but for ``merged`` and ``underflowing``."""

from __future__ import annotations

import math

import numpy as np


def over_tiles(q, k, v, skips, width, rows=10**6):
    """Attend tile by tile of keys; ``skips`` says of which rows a tile of scores is left out."""
    out = np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    for start in range(0, q.shape[-2], rows):
        at = (..., slice(start, start + rows), slice(None))
        scaled = q[at] / q.dtype.type(math.sqrt(q.shape[-1]))
        top = np.full((*scaled.shape[:-1], 1), -np.inf, q.dtype)
        total, mixed = np.zeros_like(top), np.zeros((*scaled.shape[:-1], v.shape[-1]), q.dtype)
        for first in range(0, k.shape[-2], width):
            keys = (..., slice(first, first + width), slice(None))
            scores = scaled @ k[keys].swapaxes(-1, -2)
            own = scores.max(axis=-1, keepdims=True)
            skipped = skips(top - own)
            both = np.maximum(top, np.where(skipped, -np.inf, own))
            powers = np.where(skipped, 0, np.exp(scores - both))
            total = total * np.exp(top - both) + powers.sum(axis=-1, keepdims=True)
            mixed = mixed * np.exp(top - both) + powers @ v[keys]
            top = both
        out[at] = mixed / np.where(total == 0, 1, total)  # no keys
    return out


def merged(q, k, v):
    """Right: no tile is skipped."""
    return over_tiles(q, k, v, lambda depth: depth > np.inf, 16)


def underflowing(q, k, v):
    """Right: a tile is skipped whose exponentials are 0."""
    return over_tiles(q, k, v, lambda depth: depth > 800, 16)


def two_below(q, k, v):
    """A row skips a tile whose maximum lies 2 below the running one."""
    return over_tiles(q, k, v, lambda depth: depth > 2, 16)


def a_tenth(q, k, v):
    """A row skips a tile whose largest weight is below a tenth."""
    return over_tiles(q, k, v, lambda depth: np.exp(-depth) < 0.1, 8)


def of_two_rows(q, k, v):
    """Two rows skip a tile where both lie 1 below."""
    return over_tiles(q, k, v, lambda d: (d > 1).all(axis=-2, keepdims=True) & (d > 1), 8, rows=2)


def skips_all(depth):
    """Return whether all rows lie 2.25 below."""
    deep = depth > 2.25
    return deep & deep.all(axis=-2, keepdims=True)


def of_many_rows(q, k, v):
    """Many rows skip a tile where all lie 2.25 below, as scores that fall from key to key do."""
    return over_tiles(q, k, v, skips_all, 32, rows=32)


def a_thousandth(q, k, v):
    """A row skips a tile whose largest weight is below a thousandth."""
    return over_tiles(q, k, v, lambda depth: np.exp(-depth) < 1e-3, 16)


def a_ten_millionth(q, k, v):
    """A row skips a tile whose largest weight is below 1e-7."""
    return over_tiles(q, k, v, lambda depth: np.exp(-depth) < 1e-7, 16)
