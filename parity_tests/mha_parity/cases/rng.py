"""Random numbers that are the same bits on every machine.

Values come from raw Philox words (whose stream NumPy guarantees) by exact integer arithmetic: the
sum of four 16-bit numbers, centred, is an integer within +-131070 and close to normal. Products of
two such integers, summed over a few thousand terms, stay below 2**53, so that even a matrix product
of drawn values is exact in float64, whatever BLAS computes it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CENTRE = 2 * 0xFFFF
# The standard deviation of the sum of four uniform integers on 0..65535.
SPREAD = math.sqrt(4 * (65536.0**2 - 1) / 12)


class Stream:
    """One problem's source of values, in call order."""

    def __init__(self, seed: int) -> None:
        """Start the stream of ``seed``."""
        self._words = np.random.Philox(key=seed & (2**64 - 1))

    def integers(self, *shape: int) -> NDArray[np.float64]:
        """Return integers (as float64), near normal, with standard deviation ``SPREAD``."""
        words = self._words.random_raw(math.prod(shape))
        parts = words.view(np.uint16).astype(np.float64)
        pairs = parts[::2] + parts[1::2]  # a seventh of the time of a sum along an axis of 4
        return np.asarray(pairs[::2] + pairs[1::2] - CENTRE).reshape(shape)

    def normal(self, *shape: int) -> NDArray[np.float64]:
        """Return values near the standard normal (bounded by 3.47)."""
        return self.integers(*shape) / SPREAD

    def booleans(self, probability: float, *shape: int) -> NDArray[np.bool_]:
        """Return booleans, true with ``probability``."""
        words = self._words.random_raw(math.prod(shape)) >> np.uint64(32)
        return np.asarray(words.reshape(shape) < probability * 2**32)

    def indices(self, bound: int, *shape: int) -> NDArray[np.int64]:
        """Return integers from 0 to ``bound`` - 1."""
        words = self._words.random_raw(math.prod(shape)) % np.uint64(bound)
        return np.asarray(words.reshape(shape), dtype=np.int64)

    def below(self, bound: int) -> int:
        """Return one integer from 0 to ``bound`` - 1."""
        return int(self._words.random_raw() % bound) if bound > 1 else 0


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a feature's name; bfloat16 comes from ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


def round_once(array: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return numbers rounded once to ``dtype``: to nearest, ties to even.

    Releases of ml_dtypes before 0.7 round float64 to float32 first and that to bfloat16, which
    moves numbers that lie within 2**-25 of a tie: float32 gets them rounded to odd here, from
    which the second rounding is that of the number itself.
    """
    if dtype.name != "bfloat16":
        return array.astype(dtype, order="C")
    narrow = array.astype(np.float32, order="C")
    farther = abs(narrow) > abs(array)
    truncated = np.where(farther, np.nextafter(narrow, np.float32(0)), narrow)
    inexact = (truncated != array) & ~np.isnan(array)
    odd = truncated.view(np.uint32) | inexact.astype(np.uint32)
    stored: NDArray[Any] = odd.view(np.float32).astype(dtype)
    return stored


def largest_number(name: str) -> float:
    """Return the largest finite number of a dtype, by its feature's name."""
    return 2.0**128 - 2.0**120 if name == "bfloat16" else float(np.finfo(name).max)
