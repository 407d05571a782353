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
from mha_parity.diagnose.experiments.calls import CallResult
from mha_parity.diagnose.experiments.row_factors import row_factors, shortest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.evidence import Observation

REMEDY = "look for a small constant that is added to a sum, a root or a scale, and leave it out"
SMALL = (
    "the errors are small: at most {:.2g} of the largest value of an output, in all {} failing "
    "answers compared"
)
# What a factor of the scores 1 - c f(D) is, by f.
LAWS: tuple[tuple[str, Callable[[int], float]], ...] = (
    ("{:.4g} is added to sqrt(D), by which q k^T is divided", lambda d: d**-0.5),
    ("{:.4g} is added to D, by whose root q k^T is divided", lambda d: 0.5 / d),
    ("all scores are smaller than they should be by a part of {:.4g}", lambda _: 1.0),
)
NEAR = 0.1  # how far the number of fewest digits may be from what is measured
LEFT = 0.1  # of the squared errors, what may be left over where a factor explains them


def small_errors(failing: Sequence[Observation]) -> tuple[Diagnosis, ...]:
    """Return what is added to sums or to the root of D, or that errors are small; () elsewhere."""
    trials = [CallResult(each.problem, each.answer) for each in failing if _is_compared(each)]
    shaped = [each for each in trials if each.found is not None and np.isfinite(each.found).all()]
    if not shaped or len(shaped) < len(trials) or any(each.wrong for each in shaped):
        return ()
    evidence = f"{len(shaped)} failing answers, none of which departs by 30 times its rounding"
    if found := row_factors(shaped, ()):
        return (_diagnosis(found.text, found.remedy, evidence, found.operation),)
    if text := _scaled(shaped):
        return (_diagnosis(text, "multiply q k^T by 1/sqrt(D) alone", evidence, "scale"),)
    shares = [each.largest_error / float(np.abs(each.expected).max(initial=0)) for each in shaped]
    return (_diagnosis(SMALL.format(max(shares), len(shaped)), REMEDY, evidence),)


def _is_compared(each: Observation) -> bool:
    """Return whether an answer came, and the right one is a number throughout."""
    right = each.right.answer
    return each.answer is not None and right is not None and bool(np.isfinite(right.output).all())


def _scaled(trials: Sequence[CallResult]) -> str:
    """Return by which factor the scores are off, where one law for all answers explains errors."""
    measured = [(each.problem.head_dim, *_directions(each)) for each in trials]
    whole = sum(float((error * error).sum()) for *_, error in measured)
    found = []
    for text, law in LAWS:
        moved = [(-law(width) * direction, error) for width, direction, error in measured]
        length = sum(float((d * d).sum()) for d, _ in moved)
        c = sum(float((d * e).sum()) for d, e in moved) / length if length else 0.0
        left = sum(float(((e - c * d) ** 2).sum()) for d, e in moved)
        found.append((left, text.format(shortest(c, NEAR))))
    left, text = min(found)
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
