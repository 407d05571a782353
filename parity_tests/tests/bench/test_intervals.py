"""The statistics of the benchmark: intervals that hold, and comparisons of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mha_parity.bench import stats
from mha_parity.bench.stats import (
    Interval,
    interval_above,
    median_interval,
    order_statistic_rank,
    ratio,
)

RUNS = 2000


def noisy(rng: np.random.Generator, median: float, rounds: int) -> list[float]:
    """Return times as a busy machine has them: skewed by 5 %, and one in ten 3 times as long."""
    times = median * np.exp(0.05 * rng.standard_normal(rounds))
    return list(np.where(rng.random(rounds) < 0.1, 3 * times, times))


@pytest.mark.parametrize(("count", "k"), [(6, 1), (8, 1), (9, 2), (15, 4), (21, 6), (100, 40)])
def test_ranks_are_those_of_the_sign_test(count: int, k: int) -> None:
    """The k that tables of the sign test give for 95 %: 1 of 6, 2 of 9, 4 of 15, 40 of 100."""
    assert k == order_statistic_rank(count)


@pytest.mark.parametrize("count", range(6, 40))
def test_ranks_are_the_narrowest_that_hold(count: int) -> None:
    """The interval of ranks misses the median with at most 5 %, one rank further in with more."""
    k = order_statistic_rank(count)
    missed = [2 * sum(math.comb(count, i) for i in range(j)) / 2**count for j in (k, k + 1)]

    assert missed[0] <= 0.05 < missed[1]


@pytest.mark.parametrize("count", range(6))
def test_too_few_values_bound_nothing(count: int) -> None:
    """Of five values even the smallest and the largest miss the median once in sixteen."""
    with pytest.raises(ValueError, match=f"got {count} values, but 6 are the fewest"):
        order_statistic_rank(count)


def test_interval_names_the_ordered_values() -> None:
    """Of 9 values the bounds are the second smallest and the second largest, in any order."""
    assert Interval(2, 5, 8) == median_interval([9, 1, 8, 2, 7, 3, 6, 4, 5])


@pytest.mark.parametrize("rounds", [6, 15])
def test_intervals_hold_the_median(rounds: int) -> None:
    """Over 2000 runs of skewed noise at most 5 % miss it, up to 4 standard errors of that count."""
    rng = np.random.default_rng(11)
    median = 1.0
    for_ever = np.median(noisy(rng, median, 400_001))
    found = [median_interval(noisy(rng, median, rounds)) for _ in range(RUNS)]
    missed = sum(not each.low <= for_ever <= each.high for each in found)

    assert missed <= 0.05 * RUNS + 4 * math.sqrt(0.05 * 0.95 * RUNS)


def test_mean_and_standard_error_do_not_hold_it() -> None:
    """The usual mean ± 2 standard errors misses the median of the same noise far more often."""
    rng = np.random.default_rng(11)
    missed = 0
    for _ in range(RUNS):
        times = np.array(noisy(rng, 1.0, 15))
        half = 2 * times.std(ddof=1) / math.sqrt(len(times))
        missed += not times.mean() - half <= 1.006 <= times.mean() + half

    assert missed > 0.05 * RUNS + 4 * math.sqrt(0.05 * 0.95 * RUNS)


def test_ratios_are_taken_within_rounds() -> None:
    """A machine that slows down tenfold half-way changes both times and no ratio."""
    rival = [1.0, 1.1, 0.9, 10.0, 11.0, 9.0]
    times = [2 * each for each in rival]

    assert Interval(2, 2, 2) == ratio(times, rival)


def test_unpaired_ratios_would_not_be() -> None:
    """The same times against the rival's of other rounds say anything between 0.2 and 20."""
    rival = [1.0, 1.1, 0.9, 10.0, 11.0, 9.0]
    times = [2 * each for each in rival[3:] + rival[:3]]
    found = ratio(times, rival)

    assert found.low < 0.25
    assert found.high > 19


def test_times_of_unequal_rounds_are_refused() -> None:
    """Ratios need as many times of the one as of the other."""
    with pytest.raises(ValueError, match="zip"):
        ratio([1.0] * 7, [1.0] * 6)


def test_a_slow_down_of_a_tenth_is_seen() -> None:
    """15 rounds each with 2 % noise: a ratio that grew by 10 % shows in all 200 runs."""
    rng = np.random.default_rng(5)
    seen = 0
    for _ in range(200):
        before, after = (np.exp(0.02 * rng.standard_normal(15)) * m for m in (1.0, 1.1))
        seen += interval_above(list(after), list(before))

    assert 200 == seen


@pytest.mark.parametrize(("first", "second"), [(6, 6), (15, 15), (9, 21)])
def test_noise_is_rarely_taken_for_growth(first: int, second: int) -> None:
    """Of 8000 equal ratios under skewed noise fewer than 1 % look grown."""
    rng = np.random.default_rng(3)
    alarms = sum(
        interval_above(noisy(rng, 1.0, first), noisy(rng, 1.0, second)) for _ in range(4 * RUNS)
    )

    assert alarms < 0.01 * 4 * RUNS


def test_geometric_mean_treats_twice_and_half_alike() -> None:
    """Twice as slow here and twice as fast there is as fast in the mean."""
    assert stats.geometric_mean([2.0, 0.5]) == pytest.approx(1.0, rel=1e-12)
