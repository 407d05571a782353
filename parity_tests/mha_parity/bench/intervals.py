"""Medians with intervals that hold whatever the noise looks like, and what chance can do to them.

The interval between the k-th smallest and the k-th largest of n independent values misses the
median of their distribution only if fewer than k of them fall on one side of it: by a coin's law,
with probability 2 P(Bin(n, 1/2) < k). Nothing is assumed of the distribution, so neither outliers
nor a skewed machine load make the interval untrue.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CONFIDENCE = 0.95
LEAST = 6  # of fewer values, even the smallest and the largest miss the median more often


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and the bounds that hold it with at least ``CONFIDENCE``."""

    low: float
    median: float
    high: float


def rank(count: int, confidence: float = CONFIDENCE) -> int:
    """Return the largest k for which the k-th smallest and k-th largest of ``count`` still do.

    Raises
    ------
        ValueError: there are too few values for any k.

    """
    missed, k = 0.0, 0
    while True:
        missed += 2 * math.comb(count, k) / 2**count
        if missed > 1 - confidence or 2 * k >= count:
            break
        k += 1
    if k == 0:
        raise ValueError(
            f"got {count} values, but {LEAST} are the fewest that bound a median with "
            f"{confidence:.0%} confidence."
        )
    return k


def interval(values: Sequence[float]) -> Interval:
    """Return the median of the values and the bounds of their distribution's."""
    ordered, k = sorted(values), rank(len(values))
    return Interval(ordered[k - 1], statistics.median(ordered), ordered[-k])


def ratio(times: Sequence[float], rival: Sequence[float]) -> Interval:
    """Return the interval of the ratios of times measured in the same rounds."""
    return interval([mine / its for mine, its in zip(times, rival, strict=True)])


def chance_apart(first: int, second: int) -> float:
    """Return how often the interval of ``first`` values lies wholly above that of ``second``.

    For values of one and the same distribution. All orders of the values are then equally likely,
    and the k-th smallest of the first is above the u-th of the second in those where at most
    k - 1 of the first come before that.
    """
    k, u = rank(first), second + 1 - rank(second)
    orders = sum(
        math.comb(u - 1 + j, j) * math.comb(second - u + first - j, first - j) for j in range(k)
    )
    return orders / math.comb(first + second, first)


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean, the one that ratios have."""
    return statistics.geometric_mean(values)
