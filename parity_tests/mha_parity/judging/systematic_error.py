r"""Test a run for systematic error: rounding scatters around 0, a mistake has one direction.

Far below any tolerance a mistake still has a direction. For each case the error e = answer -
reference is projected on how the output would move under a suspected mistake, g: beta = <e, g> /
<g, g> is the size of that mistake, in roundoffs. Over a run rounding makes
beta scatter; a mistake does not.

- *gain*: all outputs of a head too large by one factor (something added to a denominator);
- *scale*: all scores too large by one factor (a scale written with five digits);
- *exp*: exp too large by a factor that depends on its argument, in bins of the argument and of its
  fraction after the change to base 2 (an approximate exp);
- *spread*: no direction, but errors many times those of the legitimate orders in many cases
  (logits in bfloat16, a float32 softmax in float64).

The test: with weights w (one over the scatter that a legitimate order shows),
T = sum w (beta - d) / sqrt(sum w^2 (beta - d)^2), and likewise with -(beta + d). d is the least
effect of interest: right programs have small biases too (they form the scale with a rounding or
two, and exp is not exact). Where beta - d is symmetric around a centre of 0 or less,
P(T > x) <= exp(-x^2 / 2): Hoeffding's bound for signs, given the magnitudes; nothing is assumed
about their distribution. x is set so that a whole run raises a false alarm once in a million.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.check_result import SYSTEMATIC, CheckResult, Severity
from mha_parity.core.compare import as_float64
from mha_parity.core.features import AXES, EXTREME_VALUES
from mha_parity.judging.error_directions import (
    DIRECTIONS,
    DISTANCE_BINS,
    FRACTION_BINS,
    GAIN,
    SCALE,
    project_error,
)
from mha_parity.judging.tolerance import OrderSpread
from mha_parity.oracle.error_bound import roundoff
from mha_parity.oracle.reference import EXTENDED
from mha_parity.oracle.torch_answers import kept_result

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.oracle.reference import Reference

NOISE = "first order"  # the kind of result of a record
FALSE_ALARMS = 1e-6  # a run
DTYPES = ("float64", "float32")  # in 16 bits the least effect is larger than the mistakes
# The least effects in roundoffs. Legitimate orders have gains of up to 0.16; the scale may carry
# four roundings (its forming, the change of base); an exp is good to 4 units in the last place.
LEAST_EFFECTS = np.array([0.5, 4.0, *([4.0] * (len(DIRECTIONS) - 2))])
FEATURES = [f"{axis}={value}" for axis, values in AXES.items() for value in values]
HEADS = 8
SPREAD_OUT = "spread"
NO_DIRECTION = 0.35  # a direction that explains more of the error than this is named before spread
SPREAD = 16.0  # times the errors of legitimate orders
SPREAD_RATE = 0.05  # the share of cases in which a right candidate may have such a spread
# All tests of a run: two sides of each direction over all cases, of gain and scale for each head
# and feature, and the spread, in each dtype.
TESTS = len(DTYPES) * (2 * len(DIRECTIONS) + 2 * 2 * (HEADS + len(FEATURES)) + 1)
THRESHOLD = math.sqrt(2 * math.log(TESTS / FALSE_ALARMS))


@dataclass(frozen=True, slots=True)
class SystematicError:
    """A systematic error: which direction, where, how large (in roundoffs), with its statistic.

    ``share``: the part of all error that lies along the direction.
    """

    dtype: str
    direction: str
    group: str
    cases: int
    effect: float
    statistic: float
    share: float
    case: Case

    @property
    def sentence(self) -> str:
        """Say it to a person."""
        where = "" if self.group == "all" else f" ({self.group})"
        over = f"over {self.cases} cases in {self.dtype}{where}"
        if self.direction == SPREAD_OUT:
            return (
                f"{over}, {self.effect:.0%} have errors more than {SPREAD:g} times those of "
                f"legitimate orders, but at most {SPREAD_RATE:.0%} should."
            )
        what = {GAIN: "the output is", SCALE: "the scores are"}.get(
            self.direction, f"exp ({self.direction}) is"
        )
        size = "large" if self.effect > 0 else "small"
        part = abs(self.effect) * roundoff(np.dtype(self.dtype))
        return (
            f"{over}, {what} too {size} by a part of {part:.2g} ({abs(self.effect):.2g} roundoffs; "
            f"T = {self.statistic:.1f}, where chance stays below {THRESHOLD:.1f}): rounding would "
            f"scatter around 0."
        )


def is_tested(case: Case) -> bool:
    """Return whether the errors of a case are gathered."""
    exact = case.dtype != "float64" or EXTENDED is not np.float64
    # One error at an extreme value outweighs all others.
    return case.dtype in DTYPES and exact and case.regime not in EXTREME_VALUES


class SystematicErrorTest:
    """Gathers the signed errors of a run.

    ``sums`` has by (dtype, group) and per direction the sums of the rows that ``case_sums``
    returns; ``spread_counts`` by dtype the number of cases, and of those whose errors spread too
    far; ``last`` the last case of each dtype.
    """

    def __init__(self) -> None:
        """Start with no case."""
        self.sums: dict[tuple[str, str], Array] = defaultdict(_no_terms)
        self.spread_counts: dict[str, Array] = defaultdict(_no_cases)
        self.last: dict[str, Case] = {}

    def add(self, problem: Problem, reference: Reference, answer: Answer) -> None:
        """Take in the errors of one case; what cannot be measured here is left out."""
        fits = answer.output.shape == reference.output.shape and reference.output.size
        fits = fits and answer.output.dtype == problem.dtype
        if not (is_tested(problem.case) and fits):
            return
        with np.errstate(all="ignore"):
            error = _error(problem, reference, answer.output)
            noise = first_order_error(problem, reference)
            if not (np.isfinite(error).all() and np.isfinite(noise).all()):
                return
            self._add(problem, reference, error, noise)

    def _add(self, problem: Problem, reference: Reference, error: Array, noise: Array) -> None:
        case, unit = problem.case, roundoff(problem.dtype)
        right = _by_head(problem, np.where(np.isfinite(reference.output), reference.output, 0))
        floor = unit * _rms(right)
        sigma = np.maximum(noise, floor / 4)
        if not sigma.all():
            return
        self.last[case.dtype] = case
        self.spread_counts[case.dtype][0] += 1
        self.spread_counts[case.dtype][1] += bool(
            (_rms(error) > SPREAD * np.maximum(sigma, floor)).any()
        )
        pushed, norms = project_error(problem, reference, error)
        # (H, K), in units of the noise and of the roundoff.
        sigma = sigma[:, None] / unit
        pushed, norms = pushed / sigma**2 / unit, norms / sigma**2
        energy = (error**2).sum(axis=(0, 2, 3))[:, None] / sigma**2 / unit**2
        for head in range(0 if problem.w_out is not None else min(HEADS, problem.num_heads)):
            terms = case_sums(pushed[head], norms[head], energy[head])
            self.sums[case.dtype, f"head {head}"] += terms
        terms = case_sums(pushed.sum(axis=0), norms.sum(axis=0), energy.sum(axis=0))
        for group in ("all", *(f"{axis}={value}" for axis, value in case.features().items())):
            self.sums[case.dtype, group] += terms

    def merge(self, other: SystematicErrorTest) -> None:
        """Take in what another has gathered over later cases."""
        for key, terms in other.sums.items():
            self.sums[key] += terms
        for dtype, counts in other.spread_counts.items():
            self.spread_counts[dtype] += counts
        self.last |= other.last

    def findings(self) -> list[SystematicError]:
        """Return all that stands out."""
        found = []
        for (dtype, group), sums in self.sums.items():
            tested = len(DIRECTIONS) if group == "all" else 2
            with np.errstate(all="ignore"):
                statistic = np.nan_to_num(larger_statistic(sums))
                effect, shares = sums[2] / sums[1], mean_shares(sums)
            found += [
                SystematicError(dtype, DIRECTIONS[i], group, int(sums[0, i]), float(effect[i]),
                        float(statistic[i]), shares[DIRECTIONS[i]], self.last[dtype])
                for i in range(tested) if statistic[i] > THRESHOLD
            ]  # fmt: skip
        return found + [finding for dtype in self.spread_counts for finding in self._spread(dtype)]

    def _spread(self, dtype: str) -> list[SystematicError]:
        """Return the finding that errors spread too far, by Chernoff's bound on the count."""
        cases, precise = self.spread_counts[dtype].tolist()
        share = precise / cases
        if share <= SPREAD_RATE:
            return []
        rest = (1 - share) * math.log((1 - share) / (1 - SPREAD_RATE)) if share < 1 else 0.0
        statistic = math.sqrt(2 * cases * (share * math.log(share / SPREAD_RATE) + rest))
        if statistic <= THRESHOLD:
            return []
        last = self.last[dtype]
        return [
            SystematicError(dtype, SPREAD_OUT, "all", cases, share, statistic, NO_DIRECTION, last)
        ]

    def check_results(self) -> list[CheckResult]:
        """Return one check result for each dtype in which something stands out: what explains most.

        A finding in some heads alone is named by its head, one with some feature by the feature.
        """
        best: dict[str, SystematicError] = {}
        for finding in sorted(self.findings(), key=finding_sort_key):
            best[finding.dtype] = finding
        return [
            CheckResult(
                case=finding.case,
                check=SYSTEMATIC,
                severity=Severity.WRONG,
                error=abs(finding.effect),
                allowed=SPREAD_RATE
                if finding.direction == SPREAD_OUT
                else float(LEAST_EFFECTS[DIRECTIONS.index(finding.direction)]),
                detail=finding.sentence,
            )
            for finding in best.values()
        ]


# Functions of the module, since sums travel between processes and a lambda does not.
def _no_terms() -> Array:
    return np.zeros((7, len(DIRECTIONS)))


def _no_cases() -> Array:
    return np.zeros(2, dtype=np.int64)


def finding_sort_key(finding: SystematicError) -> tuple[bool, float, float]:
    """Return how much a finding says: over all cases or a head, explaining much, surely."""
    broad = finding.group == "all" or finding.group.startswith("head")
    return broad, round(finding.share, 1), finding.statistic


def mean_shares(sums: Array) -> dict[str, float]:
    """Return the mean share of the error along each direction; for exp, along all its bins."""
    means = dict(zip(DIRECTIONS, np.nan_to_num(sums[6] / sums[0]).tolist(), strict=True))
    for bins in (FRACTION_BINS, DISTANCE_BINS):
        means |= dict.fromkeys(bins, sum(means[each] for each in bins))
    return means


def larger_statistic(sums: Array) -> Array:
    """Return the larger of the two one-sided statistics."""
    _, w, wb, ww, wwb, wwbb, _ = sums
    above = (wb - LEAST_EFFECTS * w) / np.sqrt(
        wwbb - 2 * LEAST_EFFECTS * wwb + LEAST_EFFECTS**2 * ww
    )
    below = (-wb - LEAST_EFFECTS * w) / np.sqrt(
        wwbb + 2 * LEAST_EFFECTS * wwb + LEAST_EFFECTS**2 * ww
    )
    return np.asarray(np.maximum(above, below))


def case_sums(pushed: Array, norms: Array, energy: Array) -> Array:
    """Return what one case adds to the sums, for each direction, with b = pushed / norms.

    1, w, w b, w^2, w^2 b, w^2 b^2, and the share of the error along the direction. The weight
    w = sqrt(norms) makes the terms of all cases scatter alike, in units of the noise.
    """
    terms = np.zeros((7, len(DIRECTIONS)))
    weight = np.sqrt(norms)
    pushed = pushed / np.where(weight > 0, weight, np.inf)
    share = pushed**2 / np.where(energy > 0, energy, np.inf)
    terms[:, : len(norms)] = (
        weight > 0, weight, pushed, weight**2, weight * pushed, pushed**2, share
    )  # fmt: skip
    return terms


def first_order_error(problem: Problem, reference: Reference) -> Array:
    """Return the root mean square of each head's error, (H,), in the first legitimate order."""

    def compute() -> dict[str, Array]:
        output, _ = next(OrderSpread.of(problem, reference).answers())
        return {"error": _rms(_error(problem, reference, output))}

    return kept_result(NOISE, problem, compute)["error"]


def _rms(array: Array) -> Array:
    """Return the root mean square of each head, (H,)."""
    return np.asarray(np.sqrt(np.mean(np.square(array), axis=(0, 2, 3))))


def _error(problem: Problem, reference: Reference, output: Array) -> Array:
    """Return answer - reference by head in float64, 0 where the reference is no number."""
    finite = np.isfinite(reference.output)
    precise = output.astype(reference.output.dtype) - reference.output
    return _by_head(problem, np.where(finite, precise, 0))


def _by_head(problem: Problem, array: Array) -> Array:
    """Return an output as (N, H, L, Dv) in float64, or (N, 1, L, E) where the heads are mixed."""
    samples, length, width = array.shape
    groups = 1 if problem.w_out is not None else problem.num_heads
    split = as_float64(array).reshape(samples, length, groups, width // groups)
    return np.asarray(split.swapaxes(1, 2))
