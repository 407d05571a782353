r"""Systematic error: rounding scatters around 0, a mistake pushes one way.

Far below any tolerance a mistake still has a direction. For each case the error e = answer - gold
is projected on how the output would move under a suspected mistake, g: beta = <e, g> / <g, g> is
the size of that mistake, in roundoffs. Over a run rounding makes beta scatter; a mistake does not.

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

from mha_parity.bound import roundoff
from mha_parity.features import AXES, of_case
from mha_parity.gold import EXTENDED
from mha_parity.judgement import Judgement, Severity
from mha_parity.yardstick import Yardstick

if TYPE_CHECKING:
    from mha_parity.candidate import Answer
    from mha_parity.case import Case
    from mha_parity.gold import Gold
    from mha_parity.problem import Problem
    from mha_parity.values import Array

FALSE_ALARMS = 1e-6  # a run
DTYPES = ("float64", "float32")  # in 16 bits the least effect is larger than the mistakes
FRACTIONS = 8  # bins of the fraction of the exponent in base 2
DISTANCES = (0.25, 0.75, 1.5, 2.5, 4.0, 6.0, 9.0)  # edges of bins of the exponent
BINS = FRACTIONS + len(DISTANCES) + 1
DIRECTIONS = ("gain", "scale", *(f"exp {i}" for i in range(BINS)))
# The least effects in roundoffs. Legitimate orders have gains of up to 0.16; the scale may carry
# four roundings (its forming, the change of base); an exp is good to 4 units in the last place.
LEAST = np.array([0.5, 4.0, *([4.0] * BINS)])
FEATURES = [f"{axis}={value}" for axis, values in AXES.items() for value in values]
HEADS = 8
MOST = 6000  # weights: in larger problems the bins of exp are left out, to stay cheap
SPREAD = 16.0  # times the errors of legitimate orders
SPREAD_RATE = 0.05  # the share of cases in which a right candidate may have such a spread
# All tests of a run: two sides of each direction over all cases, of gain and scale for each head
# and feature, and the spread, in each dtype.
TESTS = len(DTYPES) * (2 * len(DIRECTIONS) + 2 * 2 * (HEADS + len(FEATURES)) + 1)
THRESHOLD = math.sqrt(2 * math.log(TESTS / FALSE_ALARMS))


@dataclass(frozen=True, slots=True)
class Finding:
    """A systematic error: which direction, where, how large (in roundoffs), how sure."""

    dtype: str
    direction: str
    group: str
    cases: int
    effect: float
    statistic: float
    case: Case

    @property
    def sentence(self) -> str:
        """Say it to a person."""
        over = f"over {self.cases} cases in {self.dtype} ({self.group})"
        if self.direction == "spread":
            return (
                f"{over}, {self.effect:.0%} have errors more than {SPREAD:g} times those of "
                f"legitimate orders, but at most {SPREAD_RATE:.0%} should."
            )
        unit = roundoff(np.dtype(self.dtype))
        what = {"gain": "the output of each head is", "scale": "the scores are"}.get(
            self.direction.split()[0], f"exp is (in bin {self.direction[4:]} of its argument)"
        )
        size = "large" if self.effect > 0 else "small"
        return (
            f"{over}, {what} too {size} by a factor of 1 {self.effect * unit:+.2g} "
            f"({abs(self.effect):.2g} roundoffs, T = {self.statistic:.1f} where chance stays below "
            f"{THRESHOLD:.1f}): rounding would scatter around 0."
        )


class Systematic:
    """Gathers the signed errors of a run."""

    def __init__(self) -> None:
        """Start with no case."""
        # (dtype, group) -> per direction: n, sum w, sum w b, sum w^2, sum w^2 b, sum w^2 b^2
        self._sums: dict[tuple[str, str], Array] = defaultdict(
            lambda: np.zeros((6, len(DIRECTIONS)))
        )
        self._wide: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._last: dict[str, Case] = {}

    def add(self, problem: Problem, gold: Gold, answer: Answer) -> None:
        """Take in the errors of one case; what cannot be measured here is left out."""
        dtype = problem.case.dtype
        exact = dtype != "float64" or np.finfo(EXTENDED).eps < np.finfo(np.float64).eps
        fits = answer.output.shape == gold.output.shape and gold.output.size
        if dtype not in DTYPES or not exact or not fits:
            return
        with np.errstate(all="ignore"):
            error = _error(problem, gold, answer.output)
            noise = _error(problem, gold, next(Yardstick.of(problem, gold).answers())[0])
            if not (np.isfinite(error).all() and np.isfinite(noise).all()):
                return
            self._add(problem, gold, error, noise)

    def _add(self, problem: Problem, gold: Gold, error: Array, noise: Array) -> None:
        case, unit = problem.case, roundoff(problem.dtype)
        right = _by_head(problem, np.where(np.isfinite(gold.output), gold.output, 0))
        floor = unit * _rms(right)
        sigma = np.maximum(_rms(noise), floor / 4)
        if not sigma.all():
            return
        self._last[case.dtype] = case
        self._wide[case.dtype][0] += 1
        self._wide[case.dtype][1] += bool((_rms(error) > SPREAD * np.maximum(sigma, floor)).any())
        directions = _directions(problem, gold)  # (N, H, K, L, C), K = 2 or len(DIRECTIONS)
        # (H, K), in units of the noise and of the roundoff; mixed heads share one error and noise.
        along = (directions * error[:, :, None]).sum(axis=(0, 3, 4)) / sigma[:, None] ** 2 * unit
        norms = (directions**2).sum(axis=(0, 3, 4)) / sigma[:, None] ** 2 * unit**2
        for head in range(0 if problem.w_out is not None else min(HEADS, problem.num_heads)):
            self._sums[case.dtype, f"head {head}"] += _terms(along[head], norms[head])
        terms = _terms(along.sum(axis=0), norms.sum(axis=0))
        for group in ("all", *(f"{axis}={value}" for axis, value in of_case(case).items())):
            self._sums[case.dtype, group] += terms

    def findings(self) -> list[Finding]:
        """Return what stands out: over all cases first, and there the simplest direction."""
        found = []
        for (dtype, group), sums in self._sums.items():
            tested = len(DIRECTIONS) if group == "all" else 2
            with np.errstate(all="ignore"):
                statistic = np.nan_to_num(_statistic(sums))
                effect = sums[2] / sums[1]
            found += [
                Finding(dtype, DIRECTIONS[i], group, int(sums[0, i]), float(effect[i]),
                        float(statistic[i]), self._last[dtype])
                for i in range(tested) if statistic[i] > THRESHOLD
            ]  # fmt: skip
        found += [finding for dtype in self._wide for finding in self._spread(dtype)]
        order = (*DIRECTIONS, "spread").index
        return sorted(found, key=lambda f: (f.group != "all", order(f.direction), -f.statistic))

    def _spread(self, dtype: str) -> list[Finding]:
        """Return the finding that errors spread too far, by Chernoff's bound on the count."""
        cases, wide = self._wide[dtype]
        share = wide / cases
        if share <= SPREAD_RATE:
            return []
        rest = (1 - share) * math.log((1 - share) / (1 - SPREAD_RATE)) if share < 1 else 0.0
        statistic = math.sqrt(2 * cases * (share * math.log(share / SPREAD_RATE) + rest))
        if statistic <= THRESHOLD:
            return []
        return [Finding(dtype, "spread", "all", cases, share, statistic, self._last[dtype])]

    def judgements(self) -> list[Judgement]:
        """Return one judgement for each dtype in which something stands out: the simplest."""
        seen: dict[str, Finding] = {}
        for finding in self.findings():
            seen.setdefault(finding.dtype, finding)
        return [
            Judgement(
                case=finding.case,
                check="systematic error",
                severity=Severity.WRONG,
                error=abs(finding.effect),
                allowed=SPREAD_RATE
                if finding.direction == "spread"
                else float(LEAST[DIRECTIONS.index(finding.direction)]),
                detail=finding.sentence,
            )
            for finding in seen.values()
        ]


def _statistic(sums: Array) -> Array:
    """Return the larger of the two one-sided statistics."""
    _, w, wb, ww, wwb, wwbb = sums
    above = (wb - LEAST * w) / np.sqrt(wwbb - 2 * LEAST * wwb + LEAST**2 * ww)
    below = (-wb - LEAST * w) / np.sqrt(wwbb + 2 * LEAST * wwb + LEAST**2 * ww)
    return np.asarray(np.maximum(above, below))


def _terms(along: Array, norms: Array) -> Array:
    """Return what one case adds to the sums: beta = along / norms, with the weight sqrt(norms).

    In units of the noise this weight makes the terms of all cases scatter alike.
    """
    terms = np.zeros((6, len(DIRECTIONS)))
    weight = np.sqrt(norms)
    pushed = along / np.where(weight > 0, weight, np.inf)
    terms[:, : len(norms)] = (
        weight > 0, weight, pushed, weight**2, weight * pushed, pushed**2
    )  # fmt: skip
    return terms


def _rms(array: Array) -> Array:
    """Return the root mean square of each head, (H,)."""
    return np.asarray(np.sqrt(np.mean(np.square(array), axis=(0, 2, 3))))


def _error(problem: Problem, gold: Gold, output: Array) -> Array:
    """Return answer - gold by head in float64, 0 where the gold is no number."""
    finite = np.isfinite(gold.output)
    wide = output.astype(gold.output.dtype) - gold.output
    return _by_head(problem, np.where(finite, wide, 0))


def _by_head(problem: Problem, array: Array) -> Array:
    """Return an output as (N, H, L, Dv) in float64, or (N, 1, L, E) where the heads are mixed."""
    samples, length, width = array.shape
    groups = 1 if problem.w_out is not None else problem.num_heads
    split = array.astype(np.float64).reshape(samples, length, groups, width // groups)
    return np.asarray(split.swapaxes(1, 2))


def _directions(problem: Problem, gold: Gold) -> Array:
    """Return how the output moves, (N, H, K, L, C): C is Dv, or E where the heads are mixed.

    Weights p moved by relative amounts t move the heads by sum_j p_j t_j (v_j - o).
    """
    p, heads, v = (rows.astype(np.float64) for rows in (gold.weights, gold.heads, gold.v))
    seen = np.isfinite(heads).all(axis=-1, keepdims=True) & np.isfinite(p).all(-1, keepdims=True)
    p, heads = np.where(seen, p, 0), np.where(seen, heads, 0)
    moved = p[:, :, None] * _moves(problem, gold, p)  # (N, H, K - 1, L, S')
    pushed = moved @ v[:, :, None] - moved.sum(axis=-1, keepdims=True) * heads[:, :, None]
    directions = np.concatenate((heads[:, :, None], pushed), axis=2)
    if problem.w_out is None:
        return directions
    samples, count, kinds, length, width = directions.shape
    weight = problem.w_out.astype(np.float64).reshape(-1, count, width)  # (E, H, Dv)
    mixed = directions @ weight.transpose(1, 2, 0)[:, None]
    return np.asarray(mixed.reshape(samples, count, kinds, length, -1))


def _moves(problem: Problem, gold: Gold, p: Array) -> Array:
    """Return the suspected relative moves of the weights, (N, H, K - 1, L, S')."""
    logits = gold.logits.astype(np.float64)
    usable = (p > 0) & np.isfinite(logits)
    logits = np.where(usable, logits, 0)
    floats = any(
        mask is not None and mask.dtype != np.bool_
        for mask in (problem.attn_mask, problem.key_padding_mask)
    )
    scores = np.where(usable, logits - problem.additive(), 0) if floats else logits
    scores = scores[:, :, None]
    if p.size > MOST:
        return scores
    highest = np.where(usable, logits, -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
    distance = np.where(usable, np.where(np.isfinite(highest), highest, 0) - logits, 0)
    exponent = -distance * math.log2(math.e)
    fraction = np.minimum((exponent - np.floor(exponent)) * FRACTIONS, FRACTIONS - 1).astype(int)
    depth = np.searchsorted(DISTANCES, distance)
    # exp(0) is exact in every program: the largest weight is in no bin.
    inside = (usable & (distance > 0))[:, :, None]
    bins = np.arange(FRACTIONS)[:, None, None] == fraction[:, :, None]
    depths = np.arange(len(DISTANCES) + 1)[:, None, None] == depth[:, :, None]
    return np.concatenate((scores, bins & inside, depths & inside), axis=2)
