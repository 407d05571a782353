"""Numbers as unevaluated sums of two float64, and products of matrices of them by BLAS.

A matrix is cut into a first slice, of so few leading bits that BLAS multiplies two such slices
without any rounding, and the rest, some 2^-24 of it. What rounding does to the products with the
rest is as much smaller: a product has more than 70 right bits instead of 53, relative to the
largest numbers of its row and column, for three products and two dozen passes.

Source: Ozaki, Ogita, Oishi and Rump 2012 (error-free transformation of matrix multiplication),
with Knuth's sum and Veltkamp's splitting. NaN and infinity, and what is near to it, come out NaN.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from numpy.typing import NDArray

    Number = TypeVar("Number", float, NDArray[Any])

DIGITS = 53
SPLITTER = 2.0**27 + 1


class Pair:
    """high + low, low so small that high is the sum rounded; 0 where it is left out."""

    __slots__ = ("_low", "high")

    def __init__(self, high: NDArray[Any], low: NDArray[Any] | None = None) -> None:
        self.high = high
        self._low = low

    @property
    def low(self) -> NDArray[Any]:
        """What high lacks."""
        return np.zeros_like(self.high) if self._low is None else self._low

    def map(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Pair:
        """Return the pair with both parts in another layout."""
        return Pair(change(self.high), None if self._low is None else change(self._low))

    def plus(self, other: NDArray[Any]) -> Pair:
        """Return the sum with plain numbers; -inf, the hidden key's, has no rest."""
        total, rest = two_sum(self.high, other)
        rest += self.low
        rest[np.isneginf(total)] = 0
        return Pair(total, rest)

    def times(self, factor: tuple[float, float]) -> Pair:
        """Return the product with one number, a pair too."""
        first, rest = _halves(self.high)
        rest += self.low
        factor_first, factor_rest = _halves(factor[0])
        low = first * (factor_rest + factor[1])
        low += rest * factor[0]
        return _normalised(first * factor_first, low)

    def sliced(self, axis: int, inner: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return first and rest: products of firsts, summed over so many, fit into 53 digits.

        Adding and taking away a number so much larger leaves the leading bits of every element.
        """
        bits = (DIGITS - math.ceil(math.log2(max(inner, 1)))) // 2
        reach = np.maximum.reduce(np.abs(self.high), axis=axis, keepdims=True, initial=0)
        _, exponent = np.frexp(reach)
        grid = np.ldexp(1.5, exponent + (DIGITS - bits - 1))
        first = self.high + grid
        first -= grid
        rest = self.high - first
        if self._low is not None:
            rest += self._low
        return first, rest


def product(left: Pair, right: Pair) -> Pair:
    """Return left @ right, (..., L, K) @ (..., K, S)."""
    inner = left.high.shape[-1]
    first, rest = left.sliced(-1, inner)
    other, other_rest = right.sliced(-2, inner)
    low = first @ other_rest
    low += rest @ right.high
    return _normalised(first @ other, low)


def quotient(over: Pair, under: Pair) -> Pair:
    """Return over / under; by what the rounded quotient leaves over comes the rest."""
    high = over.high / under.high
    first, rest = _halves(high)
    under_first, under_rest = _halves(under.high)
    left = over.high - first * under_first
    left -= first * under_rest
    left -= rest * under_first
    left -= rest * under_rest
    left += over.low
    left -= high * under.low
    return _normalised(high, left / under.high)


def two_sum(a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a + b rounded, and what the rounding took away."""
    total = a + b
    of_b = total - a
    rest = b - of_b
    of_b -= total  # minus what total has of a
    of_b += a
    rest += of_b
    return total, rest


@lru_cache(maxsize=64)
def inverse_root(number: int) -> tuple[float, float]:
    """Return 1 / sqrt(number) as a pair."""
    high = 1 / math.sqrt(number)
    over, under = high.as_integer_ratio()
    left = (under**2 - number * over**2) / (number * under**2)  # 1 / number - high^2, by integers
    return high, left / (2 * high)


def _normalised(high: NDArray[Any], low: NDArray[Any]) -> Pair:
    """Return the pair of a number and a much smaller one."""
    total = high + low
    high -= total
    low += high
    return Pair(total, low)


def _halves(number: Number) -> tuple[Number, Number]:
    """Return two numbers of at most 26 digits with this sum, so that products are exact."""
    first = SPLITTER * number
    first = first - (first - number)
    return first, number - first
