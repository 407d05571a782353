"""Medians with intervals that hold for any distribution of the noise.

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

from mha_parity.core.errors import UsageError
from mha_parity.report import units

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CONFIDENCE = 0.95
MIN_VALUES = 6  # of fewer values, even the smallest and the largest miss the median more often


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and the bounds that hold it with at least ``CONFIDENCE``."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        """Return the median and its bounds with two digits; a constant 1 is the unit itself."""
        if self.low == self.high == 1:
            return "1"
        low, median, high = (units.two_decimals(x) for x in (self.low, self.median, self.high))
        return f"{median} {low}–{high}"


def order_statistic_rank(count: int) -> int:
    """Return the largest k for which the k-th smallest and k-th largest of ``count`` still do.

    Raises
    ------
    UsageError
        There are too few values for any k.

    """
    missed, k = 0.0, 0
    while True:
        missed += 2 * math.comb(count, k) / 2**count
        if missed > 1 - CONFIDENCE or 2 * k >= count:
            break
        k += 1
    if k == 0:
        raise UsageError(
            f"got {count} values, but {MIN_VALUES} are the fewest that bound a median with "
            f"{CONFIDENCE:.0%} confidence."
        )
    return k


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median of the values and the bounds of their distribution's."""
    ordered, k = sorted(values), order_statistic_rank(len(values))
    return Interval(ordered[k - 1], statistics.median(ordered), ordered[-k])


def ratio(times: Sequence[float], rival: Sequence[float]) -> Interval:
    """Return the interval of the ratios of times measured in the same rounds."""
    return median_interval(ratios(times, rival))


def ratios(times: Sequence[float], rival: Sequence[float]) -> list[float]:
    """Return the ratios of times measured in the same rounds."""
    return [mine / its for mine, its in zip(times, rival, strict=True)]


def interval_above(now: Sequence[float], then: Sequence[float]) -> bool:
    """Return whether the interval of the median now lies wholly above the one then."""
    return median_interval(now).low > median_interval(then).high


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean, the one that ratios have."""
    return statistics.geometric_mean(values)
