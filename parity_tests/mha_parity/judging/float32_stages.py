"""Judge failing answers to float64 by the bounds of float32, which a stage in float32 keeps."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.rng import numpy_dtype
from mha_parity.core.check_result import Severity
from mha_parity.judging.gradients import judge_gradients
from mha_parity.judging.output import judge_answer
from mha_parity.oracle.reference import reference_answer
from mha_parity.oracle.torch_answers import asks_torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.check_result import CheckResult
    from mha_parity.core.problem import Problem

INSIDE = "float32"  # the dtype usually used in place of float64
PASSING = frozenset({Severity.MATCH, Severity.LESS_ACCURATE, Severity.INCONCLUSIVE})


def float32_units(
    problem: Problem, answer: Answer, check_results: Sequence[CheckResult]
) -> float | None:
    """Return the error of a failing answer to float64, in units of what float32 is allowed.

    None where the answer is to another dtype, fails by more than its numbers, is not finite where
    it should be, or is wrong by the bounds of float32 too; and where numbers of the problem have no
    neighbour in float32, as the least ones of a mask.
    """
    failed = [each for each in check_results if each.severity.fails]
    if problem.case.dtype != "float64" or {each.severity for each in failed} != {Severity.WRONG}:
        return None
    if not asks_torch() or not all(math.isfinite(each.error) for each in failed):
        return None
    found, narrow = _in_float32(answer), _cast(problem)
    if _overflows(answer.output, found.output) or any(
        _overflows(getattr(problem, name), getattr(narrow, name)) for name in _arrays(problem)
    ):
        return None
    reference = reference_answer(narrow)
    results = judge_answer(narrow, reference, found)
    severities = {each.severity for each in results}
    if problem.case.gradients == "yes" and severities <= PASSING:
        results += judge_gradients(narrow, reference, found)
        severities = {each.severity for each in results}
    if not severities <= PASSING or severities == {Severity.INCONCLUSIVE}:
        return None
    allowed = {each.check: each.allowed for each in results}
    units = [each.error / allowed[each.check] for each in failed if allowed.get(each.check)]
    return float(units[0]) if len(units) == len(failed) else None


def _in_float32(answer: Answer) -> Answer:
    """Return the answer with its arrays rounded to float32; large numbers become infinite."""
    weights, gradients = answer.weights, answer.gradients
    with np.errstate(over="ignore"):
        return dataclasses.replace(
            answer,
            output=answer.output.astype(INSIDE),
            weights=None if weights is None else weights.astype(INSIDE),
            gradients=gradients and {name: g.astype(INSIDE) for name, g in gradients.items()},
        )


def _overflows(wide: Array, narrow: Array) -> bool:
    """Return whether a finite number of an array is infinite in fewer bits."""
    return bool((np.isinf(narrow) & np.isfinite(wide)).any())


def _arrays(problem: Problem) -> list[str]:
    """Return the names of the float arrays of a problem."""
    held = ((field.name, getattr(problem, field.name)) for field in dataclasses.fields(problem))
    return [n for n, a in held if isinstance(a, np.ndarray) and a.dtype == problem.dtype]


def _cast(problem: Problem) -> Problem:
    """Return the problem with its float arrays rounded to float32; one object stays one."""
    cast: dict[int, Array] = {}
    changes: dict[str, object] = {"case": problem.case.replace(dtype=INSIDE)}
    with np.errstate(over="ignore"):
        for name in _arrays(problem):
            array = getattr(problem, name)
            changes[name] = cast.setdefault(id(array), array.astype(numpy_dtype(INSIDE)))
    return problem.replace(**changes)
