"""Compare two arrays, NaN and infinity included: the one place that says when they are equal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

# Memory layout changes the order of sums, and with it the answer to one and the same call.
ROUNDINGS = 256
# Libraries sum numbers of 16 bits in 32 and round the result of each stage: q, k, v, scores, exp,
# its sum, heads, output. 256 roundings of bfloat16 are twice the number itself.
ROUNDINGS_OF_16_BITS = 8
DIGITS = 9  # of a number in a sentence, unless more are needed


def same_kind(expected: Array, actual: Array) -> Array:
    """Return where both are finite, both NaN, or both the same infinity."""
    finite = np.isfinite(expected) & np.isfinite(actual)
    return np.asarray(finite | (np.isnan(expected) & np.isnan(actual)) | (expected == actual))


def as_float64(array: Array) -> Array:
    """Return an answer in float64; nothing warns of a signalling NaN or of a wider dtype's range.

    Memory that a target never wrote holds such numbers.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(array, dtype=np.float64)


def absolute_difference(expected: Array, actual: Array) -> Array:
    """Return |actual - expected| in float64: 0 for two NaN, infinite where the kinds differ."""
    a, b = as_float64(expected), as_float64(actual)
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(b - a)
        if np.isfinite(distance).all():  # then all of a and b are finite: most calls end here
            return np.asarray(distance)
        difference = np.where(np.isfinite(a) & np.isfinite(b), distance, 0.0)
    return np.asarray(np.where(same_kind(a, b), difference, np.inf))


def max_difference(expected: Array, actual: Array) -> float:
    """Return the largest absolute difference; infinite where shapes differ; 0 for empty arrays."""
    if expected.shape != actual.shape:
        return np.inf
    return float(absolute_difference(expected, actual).max(initial=0))


def equal_up_to_rounding(expected: Array, actual: Array) -> bool:
    """Return whether two arrays differ by no more than another order of sums explains."""
    if expected.dtype != actual.dtype:
        return False
    return max_difference(expected, actual) <= reordering_tolerance(expected)


def equal_up_to_float32(expected: Array, actual: Array) -> bool:
    """Return whether two arrays are equal, up to roundings of float32 in which many compute."""
    fewer = (each.astype(np.float32) for each in (expected, actual))
    return equal_up_to_rounding(expected, actual) or equal_up_to_rounding(*fewer)


def reordering_tolerance(array: Array) -> float:
    """Return how far another order of sums moves an element: 256 roundings of the largest.

    In 16 bits 8.
    """
    array64 = as_float64(array)
    roundings = ROUNDINGS_OF_16_BITS if array.dtype.itemsize == 2 else ROUNDINGS
    return roundings * _eps(array) * float(np.abs(array64[np.isfinite(array64)]).max(initial=0.0))


def _eps(array: Array) -> float:
    if array.dtype.name == "bfloat16":
        return float(2.0**-7)
    return float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 0.0


_DIFFER = "elements differ by up to "


def difference_said(text: str) -> float:
    """Return the number that ``describe_difference`` said; infinity where it said none."""
    number = text.partition(_DIFFER)[2].partition(" ")[0]
    return float(number) if number else math.inf


def describe_difference(expected: Array, actual: Array) -> str:
    """Say in shapes, dtypes or numbers how two arrays differ."""
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return f"{expected.shape} {expected.dtype} became {actual.shape} {actual.dtype}"
    return f"{_DIFFER}{max_difference(expected, actual):.3g}"


def in_unlike_digits(first: float, second: float) -> tuple[str, str]:
    """Return two numbers with nine digits, or with as many more as show that they differ."""
    several = range(DIGITS, 18) if first != second else ()
    digits = next((n for n in several if f"{first:.{n}g}" != f"{second:.{n}g}"), DIGITS)
    return f"{first:.{digits}g}", f"{second:.{digits}g}"
