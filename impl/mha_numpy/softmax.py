"""The softmax over the keys, in the parts that every engine shares.

    P = E / z        E = exp(scores - shift)        z = the row sums of E

The softmax is the same for any shift of a row. The row's maximum guards against overflow and
underflow, and costs two passes over the scores; whether it is needed shows in the row sums. So E
is computed without a shift first, and again with the maximum where `sums_are_safe` finds a row sum
out of range or a result that is not finite.

float32 uses powers of two, exp(x) = 2^(x log2 e), where NumPy has a vector loop for them: np.exp2
takes half the time of np.exp and is off by at most 0.97 units in the last place, np.exp by 2.2.
The factor log2 e costs nothing: it is part of the scale of the queries. A float mask is multiplied
by it too, which takes the most negative numbers, often added to hide a key, to -inf: where a mask
has such numbers, exp it is.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import FLOAT32, FLOAT64, Array
from mha_numpy.masks import NO_MASK, Masking

FLOAT64_UP_TO = 262_144
"""Numbers that are copied to float64 for their sums: two megabytes at most."""


class Exponential(NamedTuple):
    """exp(x) as function(unit * x)."""

    function: np.ufunc
    unit: float


NATURAL = Exponential(np.exp, 1.0)
LARGEST_IN_BASE_2 = float(np.finfo(np.float32).max) / 4
"""Of two masks the sum stays below the largest number, also in units of log2 e."""


def exponential(dtype: np.dtype[Any], masking: Masking = NO_MASK) -> Exponential:
    """Return the fastest, or base e where masks have finite numbers that log2 e takes too far."""
    fastest = _fastest(dtype)
    if masking.bias and fastest is not NATURAL and masking.exceeds(LARGEST_IN_BASE_2, dtype):
        return NATURAL
    return fastest


@cache
def _fastest(dtype: np.dtype[Any]) -> Exponential:
    """Return powers of two for float32 where NumPy has a vector loop for them on this processor."""
    if dtype != FLOAT32:
        return NATURAL
    try:
        from numpy.lib.introspect import opt_func_info
    except ImportError:  # NumPy before 2.1
        return NATURAL
    loops = opt_func_info(func_name="^exp2$", signature="float32").get("exp2", {}).values()
    scalar = all(loop.get("current", "baseline").startswith("baseline") for loop in loops)
    return NATURAL if scalar else Exponential(np.exp2, 1 / math.log(2))


@cache
def least_sum(dtype: np.dtype[Any]) -> float:
    """Return the least row sum of E to trust: 5e-7 for float32, 1e-51 for float64.

    Below, terms that matter, or their products with small values, come near the subnormal numbers.
    """
    return math.pow(float(np.finfo(dtype).tiny), 1 / 6)


def sums_are_safe(sums: Array, result: Array) -> bool:
    """Whether E without a shift was good enough: no row sum below `least_sum`, nothing overflowed.

    The sum of squares is finite only where every number is below the root of the largest; where
    it overflows by itself, the maximum is taken without need.
    """
    z, numbers = sums.ravel(), result.ravel()
    if not z[z.argmin()] >= least_sum(z.dtype):  # argmin finds a NaN, and takes a third of min
        return False
    return math.isfinite(z.dot(z)) and math.isfinite(numbers.dot(numbers))


def row_sums(rows: Array, *, float64_sums: bool = False) -> Array:
    """Return the sums over the last axis, which stays with size 1: a product with ones.

    BLAS takes a third of the time of np.add.reduce. `float64_sums` adds in float64, up to
    FLOAT64_UP_TO numbers: weights that are returned are then 5 % more accurate than torch's, and
    4 % less otherwise.
    """
    in_float64 = float64_sums and rows.size <= FLOAT64_UP_TO
    sums: Array = rows @ _ones(rows.shape[-1], FLOAT64 if in_float64 else rows.dtype)
    return sums.astype(rows.dtype) if in_float64 else sums


@lru_cache(maxsize=64)
def _ones(length: int, dtype: np.dtype[Any]) -> Array:
    ones = np.ones((length, 1), dtype)
    ones.flags.writeable = False
    return ones
