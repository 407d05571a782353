"""Find what is returned in the place of the log-sum-exp of each row's scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.arrays import log_sum_exp
from mha_parity.core.compare import as_float64
from mha_parity.core.verdict import Diagnosis
from mha_parity.diagnose.evidence import ROUNDINGS, TELLING
from mha_parity.diagnose.experiments.designs.calls import BITS, CallResult
from mha_parity.diagnose.experiments.designs.shortest_rules import TILES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.evidence import Observation

REMEDY = "return max(score) + log(sum(exp(score - max(score)))) over the keys that a row sees"
UNKNOWN = "none of what was tried; the largest error is {:.3g}"


def wrong_log_sum_exp(seen: Sequence[Observation]) -> tuple[Diagnosis, ...]:
    """Return what is returned in its place, in the words that fit all answers.

    Looked at are those in which it is wrong, and the output right.
    """
    every = (CallResult(each.problem, each.answer) for each in seen)
    trials = [each for each in every if _is_wrong(each) and not each.wrong]
    if not trials:
        return ()
    fits = [[text for text, array in _others(each) if _same(each, array)] for each in trials]
    unknown = UNKNOWN.format(max(map(_error, trials)))
    text = next((said for said in fits[0] if all(said in each for each in fits)), unknown)
    return (
        Diagnosis(
            bug=None,
            title=f"the log-sum-exp that comes with the output is {text}; the output is right",
            remedy=REMEDY,
            explains=len(trials) / len(seen),
            evidence=f"{len(trials)} answers in which it alone is wrong",
        ),
    )


def _others(trial: CallResult) -> Iterator[tuple[str, Array]]:
    """Yield what may be returned in its place, (N, H, L)."""
    masked, scores = (trial.right.stages[name] for name in ("masked scores", "scores"))
    largest = masked.max(axis=-1, initial=-np.inf)
    right = log_sum_exp(masked)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a scale may be 0
        summed = right - largest
        yield "to base 2, where the natural one is expected", right / math.log(2)
        mixed = largest / math.log(2) + summed
        yield "the maximum to base 2 and the natural logarithm of the sum", mixed
        mixed = largest + summed / math.log(2)
        yield "the maximum and the logarithm of the sum to base 2", mixed
        yield "the maximum of the scores, without the logarithm of the sum", largest
        yield "the logarithm of the sum, without the maximum that was subtracted", summed
        yield "the maximum less the logarithm of the sum", largest - summed
        yield "its negative", -right
        yield "the sum of the exponentials, not its logarithm", np.exp(right)
        yield "the sum of exp(score - maximum), not its logarithm", np.exp(summed)
        yield "that of the scores without the mask", log_sum_exp(scores)
        unscaled = masked / trial.problem.scale
        yield "that of the scores before they are scaled", log_sum_exp(unscaled)
        yield "the logarithm of the mean, not of the sum", right - math.log(masked.shape[-1])
        mixed = largest / trial.problem.scale + summed
        yield "the maximum before it is scaled and the logarithm of the sum", mixed
    for width in TILES:
        tiles = [masked[..., i : i + width] for i in range(0, masked.shape[-1], width)]
        parts = np.stack([log_sum_exp(each) for each in tiles])
        yield f"the largest of those of its tiles of {width} keys", parts.max(axis=0)
        yield f"that of its last tile of {width} keys", parts[-1]


def _found(trial: CallResult) -> Array | None:
    """Return the log-sum-exp of an answer in float64, None where none was returned."""
    found = None if trial.answer is None else trial.answer.log_sum_exp
    return None if found is None else as_float64(found)


def _error(trial: CallResult) -> float:
    """Return the largest error, of rows that see a key."""
    found = _found(trial)
    if found is None:
        return 0.0
    expected = log_sum_exp(trial.right.stages["masked scores"])
    with np.errstate(invalid="ignore"):
        error = np.where(_seen(trial), np.abs(found - expected), 0)
    return float(np.nan_to_num(error, nan=np.inf).max(initial=0))


def _is_wrong(trial: CallResult) -> bool:
    return _found(trial) is not None and _error(trial) > TELLING * _rounding(trial)


def _same(trial: CallResult, array: Array) -> bool:
    """Return whether it is this array, beyond what rounding explains of rows that see a key."""
    found = _found(trial)
    assert found is not None  # noqa: S101  (of answers in which it is wrong)
    with np.errstate(invalid="ignore"):
        near = np.abs(found - array) <= TELLING * _rounding(trial) * (1 + np.abs(array))
    return bool(near[_seen(trial)].all())


def _seen(trial: CallResult) -> Array:
    """Return which rows see a key, (N, H, L)."""
    return np.asarray(np.isfinite(log_sum_exp(trial.right.stages["masked scores"])))


def _rounding(trial: CallResult) -> float:
    """Return how far rounding takes it, for the largest score that has a weight."""
    scores = trial.right.stages["masked scores"]
    weights = trial.right.stages["weights"]
    largest = float(np.abs(np.where(weights > 0, scores, 0)).max(initial=0))
    bits = BITS[trial.problem.case.dtype]
    return ROUNDINGS["float64"] * 2.0**-bits * (1 + largest)
