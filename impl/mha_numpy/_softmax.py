"""The softmax over the last axis, in place, with as few passes over the rows as it takes.

NumPy pays some 30 to 80 ns a row in a reduction or a broadcast, for short rows more than for the
arithmetic. So the row's maximum is left out where a bound on all logits shows that no exp can
overflow and no row sum can vanish, and short rows are summed by one product with ones, in float64:
that makes float32 weights, whose sum is their largest single error, as accurate as torch's.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

SHORT_ROW = 12
"""Below this length the sum in the row's own dtype is accurate enough, and a microsecond faster."""

LONG_ROW = 1024
"""From this length on the pairwise sum of a row is fast, and accurate enough in float32."""

BLOCK = 32_768
"""So many numbers are turned to float64 at a time: a quarter of a megabyte, which stays cached."""

DOT_SIZE = 4096
"""Up to this size the sum of squares is tried first: one pass, and still a useful bound."""

# e^limit times 10^10 keys is finite, and e^-limit is a normal number.
LIMITS = {np.dtype(np.float32): 60.0, np.dtype(np.float64): 600.0}


def is_bounded(logits: NDArray[Any]) -> bool:
    """Whether all logits are finite and so small that exp needs no shift by the row's maximum."""
    limit = LIMITS[logits.dtype]
    flat = logits.reshape(-1)
    if flat.size <= DOT_SIZE:
        squares = flat.dot(flat)
        if squares <= limit * limit:
            return True
        if not math.isfinite(squares):
            return False
    highest, lowest = np.maximum.reduce(flat), np.minimum.reduce(flat)
    return bool(highest <= limit and lowest >= -limit)


def softmax_inplace(
    logits: NDArray[Any], *, empty_rows_are_zero: bool = False, bounded: bool = False
) -> NDArray[Any]:
    """Turn logits into weights over the last axis, in their own memory, and return them.

    `bounded` says that `is_bounded` holds for all logits that are not -inf. A row of -inf becomes
    NaN, or 0 where `empty_rows_are_zero`: its maximum then counts as the least finite number and
    its sum as the least normal one. Every other row has a finite maximum (or NaN, which stays)
    and a larger sum, so neither touches it.
    """
    if logits.shape[-1] == 0:
        return logits
    if not bounded:
        peak = np.maximum.reduce(logits, axis=-1, keepdims=True)
        if empty_rows_are_zero:
            np.maximum(peak, np.finfo(logits.dtype).min, out=peak)
        np.subtract(logits, peak, out=logits)
    np.exp(logits, out=logits)
    total = row_sums(logits)
    if empty_rows_are_zero:
        np.maximum(total, np.finfo(logits.dtype).tiny, out=total)
    np.divide(logits, total, out=logits)
    return logits


def row_sums(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the sums over the last axis, which stays with size 1."""
    length = rows.shape[-1]
    if length >= LONG_ROW:
        return np.add.reduce(rows, axis=-1, keepdims=True)
    if length < SHORT_ROW or rows.dtype == np.float64:
        sums: NDArray[Any] = rows @ _ones(length, rows.dtype)
        return sums
    ones = _ones(length, np.float64)
    if rows.size <= BLOCK:
        sums = rows @ ones
        return sums.astype(rows.dtype)
    flat = rows.reshape(-1, length)
    sums = np.empty((flat.shape[0], 1), rows.dtype)
    step = BLOCK // length
    for start in range(0, flat.shape[0], step):
        sums[start : start + step] = flat[start : start + step] @ ones
    return sums.reshape(*rows.shape[:-1], 1)


@lru_cache(maxsize=64)
def _ones(length: int, dtype: DTypeLike) -> NDArray[Any]:
    ones = np.ones((length, 1), dtype)
    ones.flags.writeable = False
    return ones
