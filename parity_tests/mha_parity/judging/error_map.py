"""Return the error of every output element in units of the allowed error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.judging.output import allowed_error
from mha_parity.judging.output_groups import judged_array

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem
    from mha_parity.judging.output import JudgeSettings
    from mha_parity.oracle.reference import Reference

TINY = np.finfo(np.float64).tiny


def error_units(
    problem: Problem, reference: Reference, answer: Answer, settings: JudgeSettings
) -> Array | None:
    """Return the error of every element of the output over the allowed error of its group.

    The shape is (N, L, G, W): the groups are the heads, or one where the output projection mixes
    them. Infinite where the answer alone is not finite; 0 where the reference is not; None where
    the answer is no array to compare.
    """
    judged = judged_array("output", problem, reference)
    if np.shape(answer.output) != judged.reference.shape or not is_numeric(answer.output):
        return None
    allowed = allowed_error(problem, reference, judged, settings.k)
    error = np.abs(np.asarray(judged.difference(np.asarray(answer.output)), dtype=np.float64))
    units = np.nan_to_num(error, nan=np.inf, posinf=np.inf) / np.maximum(
        judged.broadcast_groups(allowed), TINY
    )
    return np.asarray(units.reshape(judged.shape))


def is_numeric(array: object) -> bool:
    """Whether this is an array of real numbers: what else a target returned has no difference."""
    return isinstance(array, np.ndarray) and array.dtype.kind not in "cOSU"
