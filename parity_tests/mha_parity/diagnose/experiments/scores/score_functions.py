"""Functions of the score that stand in its place: clipped, capped, another base, a polynomial."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.designs.weights_from_output import SampleWeights
from mha_parity.diagnose.experiments.scores.transfer_curve import Curve

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array

ROWS = 8


@dataclass(frozen=True)
class ScoreFunction:
    """A function of the score in place of the score, with a constant to fit."""

    text: str
    function: Callable[[Array, float], Array]
    constants: tuple[float, ...]
    remedy: str
    operation: str = ""


def _log_abs(z: Array) -> Array:
    return np.log(np.maximum(np.abs(z), 1e-300))


BENT = 30  # times what a log-ratio may be off: three times what a function that fits may miss
GRID = tuple(np.geomspace(0.3, 120, 60).tolist())
SCORE_FUNCTIONS = (
    ScoreFunction(
        "scores are clipped to ±{c:.4g} before the softmax",
        lambda z, c: np.clip(z, -c, c),
        GRID,
        "remove the clip: the softmax subtracts the row's maximum and needs none",
        "clipped scores",
    ),
    ScoreFunction(
        "scores are clipped at {c:.4g} from above",
        np.minimum,
        GRID,
        "remove the clip",
        "clipped scores",
    ),
    ScoreFunction(
        "scores are clipped at -{c:.4g} from below",
        lambda z, c: np.maximum(z, -c),
        GRID,
        "remove the clip",
        "clipped scores",
    ),
    ScoreFunction(
        "scores are capped by {c:.4g} tanh(score / {c:.4g})",
        lambda z, c: c * np.tanh(z / c),
        GRID,
        "remove the soft cap: multi-head attention has none",
        "capped scores",
    ),
    ScoreFunction(
        "weights are relu(score), not exp(score)",
        lambda z, _: _log_abs(np.maximum(z, 0)),
        (1.0,),
        "use exp",
    ),
    ScoreFunction(
        "weights are score^2, not exp(score)", lambda z, _: 2 * _log_abs(z), (1.0,), "use exp"
    ),
    ScoreFunction(
        "weights are sigmoid(score), not exp(score)",
        lambda z, _: -np.log1p(np.exp(-z)),
        (1.0,),
        "use exp",
    ),
    ScoreFunction(
        "weights are 1 + score, not exp(score)", lambda z, _: _log_abs(1 + z), (1.0,), "use exp"
    ),
    ScoreFunction(
        "weights are elu(score) + 1, not exp(score)",
        lambda z, _: np.where(z > 0, np.log1p(np.maximum(z, 0)), z),
        (1.0,),
        "use exp",
    ),
    ScoreFunction(
        "weights are (1 + score/{c:.0f})^{c:.0f}, not exp(score)",
        lambda z, c: c * _log_abs(1 + z / c),
        (2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
        "use exp",
    ),
    ScoreFunction(
        "the exponential is a Taylor polynomial of degree {c:.0f}",
        lambda z, c: _log_abs(_taylor(z, int(c))),
        tuple(range(2, 13)),
        "use exp",
    ),
    ScoreFunction(
        "scores are taken by their magnitude", lambda z, _: np.abs(z), (1.0,), "keep the sign"
    ),
    ScoreFunction(
        "negative scores are set to 0", lambda z, _: np.maximum(z, 0), (1.0,), "remove the relu"
    ),
    ScoreFunction(
        "scores below 0 are multiplied by {c:.4g}",
        lambda z, c: np.where(z > 0, z, c * z),
        tuple(np.geomspace(0.005, 0.9, 40).tolist()),
        "remove the leaky relu",
    ),
    ScoreFunction(
        "scores are rounded to multiples of {c:.4g}",
        lambda z, c: np.round(z / c) * c,
        tuple(2.0**-k for k in range(9)),
        "keep the scores in floating point",
    ),
)


def _taylor(z: Array, degree: int) -> Array:
    total = np.ones_like(z)
    term = np.ones_like(z)
    for n in range(1, degree + 1):
        term = term * z / n
        total = total + term
    return total


def score_function(found: Curve) -> tuple[ScoreFunction, float] | None:
    """Return the function of the score that gives the weights, with its constant, if one does.

    The function is applied to the score, or to the score less the row's largest. Near a straight
    line, roundings to 16 bits fit a clip of the largest scores as well.
    """
    found = _fewer_rows(found)
    if found.misfit(found.x) <= BENT * found.atol:
        return None
    scores = np.where(found.reading.visible, found.reading.scores, 0)
    top = np.where(found.reading.visible, found.reading.scores, -np.inf).max(axis=-1, keepdims=True)
    with np.errstate(all="ignore"):
        for each in SCORE_FUNCTIONS:
            for z, of in ((scores, each), (scores - top, _relative(each))):
                constant, rest = _fitted(found, of, z) if of is not None else (0.0, math.inf)
                if of is not None and rest <= 10 * found.atol:
                    return of, constant
    return None


def _relative(each: ScoreFunction) -> ScoreFunction | None:
    """Return the function of a score less the row's largest; None for one of both signs.

    No such score is above 0.
    """
    if "±" in each.text:
        return None
    return replace(each, text=f"{each.text} (of each score less the row's largest)")


def _fewer_rows(found: Curve) -> Curve:
    """Return the curve at the ``ROWS`` rows that are furthest from a straight line.

    A constant to fit needs no more rows, but those in which it shows.
    """
    reading = found.reading
    rest = np.where(found.usable, np.abs(found.y - found.x), 0).max(axis=(0, 2))
    rows = np.sort(np.argsort(-rest)[:ROWS])
    fewer = SampleWeights(
        reading.problem, reading.weights[:, rows], reading.expected[:, rows],
        reading.scores[:, rows], reading.query[:, rows], reading.key,
    )  # fmt: skip
    return Curve(
        fewer, found.y[:, rows], found.x[:, rows], found.usable[:, rows], found.reference[:, rows]
    )


def _fitted(found: Curve, each: ScoreFunction, z: Array) -> tuple[float, float]:
    def rest(constant: float) -> float:
        actual = found.misfit(found.relative(each.function(z, constant)))
        return actual if math.isfinite(actual) else math.inf

    rests = [rest(c) for c in each.constants]
    best = int(np.argmin(rests))
    if len(each.constants) != len(GRID) or each.constants != GRID:
        return each.constants[best], rests[best]
    low, high = GRID[max(best - 1, 0)], GRID[min(best + 1, len(GRID) - 1)]
    return _refined(rest, low, high)


def _refined(rest: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Return where ``rest`` is least between two constants, by golden sections."""
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        a, b = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, b) if rest(a) < rest(b) else (a, high)
    middle = (low + high) / 2
    for digits in (2, 3, 4):
        short = float(f"{middle:.{digits}g}")
        if rest(short) <= max(rest(middle), 1e-9):
            return short, rest(short)
    return middle, rest(middle)
