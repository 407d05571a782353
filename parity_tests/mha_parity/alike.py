"""Whether two answers of one candidate are one but for the order of sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mha_parity.values import Array

# Answers to one call may differ by how arrays lie in memory, which changes the order of sums.
SAME = 256


def same(first: Array, second: Array) -> bool:
    """Return whether two answers are one but for the order of sums."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if np.array_equal(first, second, equal_nan=True):
        return True
    a, b = (array.astype(np.float64) for array in (first, second))
    unlike = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    with np.errstate(invalid="ignore"):
        return bool((np.abs(a - b)[unlike] <= near(first)).all())


def near(array: Array) -> float:
    """Return how far the elements of another order of sums may lie from those of ``array``."""
    wide = array.astype(np.float64)
    return SAME * _eps(array) * float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))


def _eps(array: Array) -> float:
    if array.dtype.name == "bfloat16":
        return float(2.0**-7)
    return float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 0.0


def differ(first: Array, second: Array) -> str:
    """Say how two answers differ."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return f"{first.shape} {first.dtype} became {second.shape} {second.dtype}"
    with np.errstate(invalid="ignore"):
        error = np.abs(first.astype(np.float64) - second.astype(np.float64))
    return f"elements differ by up to {np.nanmax(error, initial=0.0):.3g}"
