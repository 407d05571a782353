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
    return interval(ratios(times, rival))


def ratios(times: Sequence[float], rival: Sequence[float]) -> list[float]:
    """Return the ratios of times measured in the same rounds."""
    return [mine / its for mine, its in zip(times, rival, strict=True)]


def grew(now: Sequence[float], then: Sequence[float], chance: float) -> bool:
    """Return whether values have grown, a mistake no likelier than ``chance`` where they have not.

    The intervals of both are compared: those of ``CONFIDENCE``, or wider ones where these would be
    mistaken too often. Six values each have none wider than 1 in 924.
    """
    low, high = ranks(len(now), len(then), chance)
    return sorted(now)[low - 1] > sorted(then)[-high]


def ranks(first: int, second: int, chance: float) -> tuple[int, int]:
    """Return the ranks k and j for which first's k-th smallest passes second's j-th largest."""
    k, j = rank(first), rank(second)
    while chance_apart(first, second, k, j) > chance and max(k, j) > 1:
        if j == 1 or (k > 1 and k * second >= j * first):
            k -= 1
        else:
            j -= 1
    return k, j


def chance_apart(first: int, second: int, k: int, j: int) -> float:
    """Return how often the k-th smallest of ``first`` values is above second's j-th largest.

    For values of one and the same distribution. All orders of the values are then equally likely,
    and that is so in those where at most k - 1 of the first come before all but j - 1 of the
    second.
    """
    u = second + 1 - j
    orders = sum(
        math.comb(u - 1 + i, i) * math.comb(second - u + first - i, first - i) for i in range(k)
    )
    return orders / math.comb(first + second, first)


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean, the one that ratios have."""
    return statistics.geometric_mean(values)
