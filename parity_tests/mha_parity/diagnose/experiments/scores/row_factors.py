"""Rows of the output that are the right ones times a factor: the sum of exponentials is another.

With l = sum_s exp(score_s - m) and e added to it, a row is the right one times l / (l + e). An e of
1e-12 shows in the outputs themselves, and in weights that are read exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.evidence import ROUNDINGS
from mha_parity.diagnose.experiments.designs.calls import BITS
from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.scores.denominators import (
    REMEDY,
    added_to_sum,
    is_possible,
    near_one,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.designs.calls import CallResult
    from mha_parity.diagnose.experiments.designs.weights_from_output import SampleWeights

NEAR = 1e-3  # of what is added: how far it may vary from row to row
ALIKE = 0.2  # the same from problem to problem, where it is near the last digits
LEAST_ROWS = 4  # that show a factor
UNKNOWN = "each row of the output is the right one times {} … {}, expected 1"
UNKNOWN_REMEDY = "look at what rows are divided by, and at what multiplies them behind the softmax"


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows (..., D) as found and as expected, their scores (..., S), and what rounding allows.

    ``rounding`` is that of a sum; errors of the scores come on top of it in ``allowed``.
    """

    found: Array
    expected: Array
    scores: Array
    rounding: float
    allowed: float

    @classmethod
    def of_trial(cls, trial: CallResult) -> Rows | None:
        """Return the rows of an output by head, None where it has another shape."""
        if trial.found is None:
            return None
        scores = trial.right.stages["masked scores"]
        largest = float(np.abs(trial.expected).max(initial=0))
        rounding = _rounding(trial.problem.case.dtype) * largest
        return cls(trial.found, trial.expected, scores, rounding, trial.allowed)

    @classmethod
    def of_reading(cls, reading: SampleWeights) -> Rows:
        """Return rows of weights."""
        seen = np.abs(np.where(reading.visible, reading.scores, 0)).max(initial=0)
        rounding = _rounding(reading.problem.case.dtype)
        allowed = float(rounding * (1 + seen))
        return cls(reading.weights, reading.expected, reading.scores, rounding, allowed)

    def factors(self) -> tuple[Array, Array] | None:
        """Return the factor of each row, and how far rounding takes it; None where none fits."""
        if not (np.isfinite(self.found).all() and np.isfinite(self.expected).all()):
            return None
        squares = (self.expected * self.expected).sum(axis=-1)
        some, divisor = squares > 0, np.where(squares > 0, squares, 1)
        factor = np.where(some, (self.found * self.expected).sum(axis=-1) / divisor, 1)
        rest = float(np.abs(self.found - factor[..., None] * self.expected).max(initial=0))
        if rest > self.allowed:
            return None
        # Errors of the scores change the weights of a row, and are seen in what is left.
        return factor, (self.rounding + rest) / np.sqrt(np.where(some, squares, np.inf))


def _rounding(dtype: str) -> float:
    return float(ROUNDINGS["float64"] * 2.0 ** -BITS[dtype])


def row_factors(wrong: Sequence[CallResult], readings: Sequence[SampleWeights]) -> Effect | None:
    """Return what is added to the sums of exponentials, where each row is off by a factor.

    Weights are looked at where no output of a plain problem is wrong.
    """
    rows = [found for each in wrong if (found := Rows.of_trial(each))]
    rows = rows or [Rows.of_reading(each) for each in readings if not each.right]
    rows = [each for each in rows if each.expected.size]
    measured = [each.factors() for each in rows]
    factors = [each for each in measured if each is not None]
    if not rows or len(factors) < len(rows):
        return None
    shown = sum(int((np.abs(1 - factor) > 2 * off).sum()) for factor, off in factors)
    # A factor that rounding does not tell from 1 is 1.
    clear = [np.where(np.abs(1 - factor) <= 2 * off, 1, factor) for factor, off in factors]
    least, most = (float(f([f(each) for each in clear])) for f in (np.min, np.max))
    if shown < LEAST_ROWS or least <= 0:
        return None
    added = _added(rows, factors)
    if not added and most - least <= max(float(off.max()) for _, off in factors):
        return None  # one factor of all rows, as weights show
    if added:
        return added
    said = UNKNOWN.format(near_one(least, 4), near_one(most, 4))
    return Effect(said, UNKNOWN_REMEDY, understood=False)


def _added(rows: Sequence[Rows], factors: Sequence[tuple[Array, Array]]) -> Effect | None:
    """Return what is added to each sum, where it is one number for all rows of all problems."""
    fitting: dict[Effect, list[float]] = {}
    for each, (factor, off) in zip(rows, factors, strict=True):
        top = each.scores.max(axis=-1, initial=-np.inf)
        shifted = np.exp(each.scores - top[..., None]).sum(axis=-1)
        excess = 1 / factor - 1
        with np.errstate(over="ignore", invalid="ignore"):  # of scores past the range of exp
            added = list(added_to_sum(excess, shifted, top))
        at = np.unravel_index(int(np.abs(excess / off).argmax()), excess.shape)
        for effect, extra in added:
            constant = float(extra[at])
            with np.errstate(divide="ignore", invalid="ignore"):
                predicted = np.where(extra == 0, 0, constant * excess / extra)
            if (np.abs(excess - predicted) <= NEAR * np.abs(predicted) + 2 * off).all():
                fitting.setdefault(effect, []).append(constant)
    for effect, constants in fitting.items():
        typical = float(np.median(constants))
        near = np.abs(np.array(constants) / typical - 1) <= ALIKE
        alike = len(constants) == len(rows) and near.all() and typical > 0
        if alike and is_possible(effect, typical):
            text = effect.text.format(c=shortest(typical, NEAR))
            return replace(effect, text=text, remedy=REMEDY)
    return None


def shortest(value: float, near: float) -> float:
    """Return the number of fewest digits that is no further off than this share."""
    shorter = (float(f"{value:.{digits}g}") for digits in (1, 2, 3))
    return next((each for each in shorter if abs(each - value) <= near * abs(value)), value)
