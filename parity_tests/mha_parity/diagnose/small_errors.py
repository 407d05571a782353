"""Errors of failing cases that are too small for the experiments, and what they have in common.

The experiments take an error for one where it is 30 times what they allow for rounding; a case
fails by less. The answers themselves then show a factor of each row (``row_factors``), or one of
the scores: to first order in its departure e from 1,

    output - right output = e sum_s P_s (score_s - sum_t P_t score_t) v_s
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.verdict import Diagnosis
from mha_parity.diagnose.experiments.designs.calls import CallResult
from mha_parity.diagnose.experiments.scores.added_values import added_values
from mha_parity.diagnose.experiments.scores.row_factors import row_factors, shortest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.evidence import Observation

SMALL = (
    "the errors are small: at most {:.2g} of the largest value of an output, in all {} failing "
    "answers compared, as of a constant that is added to a sum, a root or a scale"
)
# What a factor of the scores 1 - c f(D) is, by f.
LAWS: tuple[tuple[str, Callable[[int], float]], ...] = (
    ("{:.4g} is added to sqrt(D), by which q k^T is divided", lambda d: d**-0.5),
    ("{:.4g} is added to D, by whose root q k^T is divided", lambda d: 0.5 / d),
    ("all scores are smaller than they should be by a part of {:.4g}", lambda _: 1.0),
    ("all scores are larger than they should be by a part of {:.4g}", lambda _: -1.0),
)
NEAR = 0.1  # how far the number of fewest digits may be from what is measured
SHOWN = 0.125  # of what the experiments allow for rounding: right outputs err by less
LEFT = 0.1  # of the squared errors, what may be left over where a factor explains them


def small_errors(failing: Sequence[Observation]) -> tuple[Diagnosis, ...]:
    """Return what is added to sums or to the root of D, or that errors are small; () elsewhere."""
    trials = [CallResult(each.problem, each.answer) for each in failing if _is_compared(each)]
    if not trials or not all(map(_is_small, trials)):
        return ()
    # Some fail by a relation, or by weights: of these the output may be right.
    shown = [each.largest_error > SHOWN * each.allowed for each in trials]
    if sum(shown) < len(shown) / 2:
        return ()
    evidence = f"{len(trials)} failing answers, none of which departs by 30 times its rounding"
    if found := added_values(trials) or row_factors(trials, ()):
        return (_diagnosis(found.text, found.remedy, evidence, found.operation),)
    if text := _scaled(trials):
        return (_diagnosis(text, "multiply q k^T by 1/sqrt(D) alone", evidence, "scale"),)
    shares = [each.largest_error / float(np.abs(each.expected).max(initial=0)) for each in trials]
    # Without a remedy: what other checks found comes before it.
    return (_diagnosis(SMALL.format(max(shares), len(trials)), "", evidence),)


def _is_compared(each: Observation) -> bool:
    """Return whether an answer came, and the right one is of numbers, some of them not 0."""
    right = each.right.answer
    if each.answer is None or right is None or not right.output.any():
        return False
    return bool(np.isfinite(right.output).all())


def _is_small(trial: CallResult) -> bool:
    """Return whether an answer is of the right shape and dtype, and right to the experiments.

    In 16 bits what they allow for rounding is as large as a gross error.
    """
    if trial.found is None or trial.answer is None or trial.wrong:
        return False
    return trial.answer.output.dtype == trial.problem.dtype and trial.problem.dtype.itemsize > 2


def _scaled(trials: Sequence[CallResult]) -> str:
    """Return by which factor the scores are off, where one law for all answers explains errors."""
    measured = [(each.problem.head_dim, *_directions(each)) for each in trials]
    whole = sum(float((error * error).sum()) for *_, error in measured)
    found = []
    laws = LAWS if len({width for width, *_ in measured}) > 1 else LAWS[2:]  # alike at one width
    for text, law in laws:
        moved = [(-law(width) * direction, error) for width, direction, error in measured]
        length = sum(float((d * d).sum()) for d, _ in moved)
        c = sum(float((d * e).sum()) for d, e in moved) / length if length else 0.0
        left = sum(float(((e - c * d) ** 2).sum()) for d, e in moved)
        if c > 0:
            found.append((left, text.format(shortest(c, NEAR))))
    left, text = min(found, default=(np.inf, ""))
    return text if left <= LEFT * whole else ""


def _directions(trial: CallResult) -> tuple[Array, Array]:
    """Return how the output moves with a factor of the scores, and its error, in allowances."""
    stages = trial.right.stages
    weights, scores = stages["weights"], stages["masked scores"]
    seen = np.where(weights > 0, scores, 0)
    moved: Array = weights * (seen - (weights * seen).sum(axis=-1, keepdims=True))
    assert trial.found is not None  # noqa: S101  (of answers of the right shape)
    direction, error = moved @ stages["value heads"], trial.found - trial.expected
    return direction / trial.allowed, error / trial.allowed


def _diagnosis(title: str, remedy: str, evidence: str, operation: str = "") -> Diagnosis:
    return Diagnosis(
        bug=None, title=title, remedy=remedy, explains=1.0, evidence=evidence, operation=operation
    )
