"""Where an output's error is, in units of what the judge allows there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.judging import ROUNDINGS
from mha_parity.quantity import quantity
from mha_parity.yardstick import Yardstick

if TYPE_CHECKING:
    from mha_parity.candidate import Answer
    from mha_parity.gold import Gold
    from mha_parity.judging import Settings
    from mha_parity.problem import Problem
    from mha_parity.values import Array

TINY = np.finfo(np.float64).tiny


def error_units(problem: Problem, gold: Gold, answer: Answer, settings: Settings) -> Array | None:
    """Return the error of every element of the output over the allowed error of its group.

    The shape is (N, L, G, W): the groups are the heads, or one where the output projection mixes
    them. Infinite where the answer alone is not finite; 0 where the gold is not; None where the
    answer is no array to compare.
    """
    judged = quantity("output", problem, gold)
    if np.shape(answer.output) != judged.gold.shape or not numeric(answer.output):
        return None
    *_, yard = Yardstick.of(problem, gold).errors(judged)
    allowed = settings.k * yard + ROUNDINGS * judged.rounding
    error = np.abs(np.asarray(judged.difference(np.asarray(answer.output)), dtype=np.float64))
    units = np.nan_to_num(error, nan=np.inf, posinf=np.inf) / np.maximum(
        judged.spread(allowed), TINY
    )
    return np.asarray(units.reshape(judged.shape))


def numeric(array: object) -> bool:
    """Whether this is an array of real numbers: what else a target returned has no difference."""
    return isinstance(array, np.ndarray) and array.dtype.kind not in "cOSU"
