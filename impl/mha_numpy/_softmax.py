"""The softmax over the last axis, in place, with as few passes over the rows as it takes.

NumPy pays some 30 to 80 ns a row in a reduction or a broadcast, for short rows more than for the
arithmetic. So the row's maximum is left out where a bound on all logits shows that no exp can
overflow and no row sum can vanish, and short rows are summed by one product with ones.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LONG_ROW = 512
"""From this length on a pairwise sum of a row is as fast as a product, and more accurate."""

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
    sums: NDArray[Any] = rows @ _ones(length, rows.dtype)
    return sums


@lru_cache(maxsize=64)
def _ones(length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    ones = np.ones((length, 1), dtype)
    ones.flags.writeable = False
    return ones
