"""Prepare one case for ``replay``: the matrices around the worst error, and errors in units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.check_result import NO_INDEX, Place
from mha_parity.core.compare import as_float64
from mha_parity.core.report_arrays import CaseDetail, Comparison
from mha_parity.judging.error_map import error_units, is_numeric
from mha_parity.judging.gradients import CHECK, expected_gradients

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.check_result import CheckResult
    from mha_parity.core.problem import Problem
    from mha_parity.judging.output import JudgeSettings
    from mha_parity.oracle.reference import Reference
    from mha_parity.run.case_run import CaseResult


def case_detail(
    result: CaseResult, settings: JudgeSettings, reported: Sequence[tuple[str, str]] = ()
) -> CaseDetail:
    """Return what ``replay`` prints of a case; the arrays only where the target answered.

    ``reported`` are the target's call as Python, after "", and the calls that a finding of a check
    compares, after its name.
    """
    units = None
    failing = {each.check for each in result.check_results if each.severity.fails}
    if result.problem and result.reference and result.answer:
        units = error_units(result.problem, result.reference, result.answer, settings)
    return CaseDetail(
        case=result.case,
        check_results=result.check_results,
        inconclusive=result.inconclusive,
        problem=result.problem,
        comparison=first_comparison(result),
        error_units=units,
        call=next((text for check, text in reported if not check), ""),
        compared=tuple((check, text) for check, text in reported if check in failing),
    )


def first_comparison(result: CaseResult) -> Comparison | None:
    """Return the comparison of the first failed check that has one, else that of the output."""
    if result.problem is None or result.reference is None or result.answer is None:
        return None
    failed = [each for each in result.check_results if each.severity.fails]
    output = [each for each in result.check_results if each.check == "output"]
    for check_result in (*failed, *output):
        pair = _pair(result.problem, result.reference, result.answer, check_result.check)
        if pair is not None and pair[0].shape == pair[1].shape and pair[0].size:
            return _placed(check_result, *pair, result.problem.num_heads)
    return None


def _pair(
    problem: Problem, reference: Reference, answer: Answer, check: str
) -> tuple[Array, Array] | None:
    """Return the target's array and torch's, whole, or None where the check has none."""
    actual: Array | None = None
    expected: Array | None = None
    if check == "output":
        actual, expected = answer.output, reference.output
    elif check == "weights":
        actual = answer.weights
        averaged = isinstance(actual, np.ndarray) and actual.ndim == reference.averaged.ndim
        expected = reference.averaged if averaged else reference.weights
    elif check.startswith(CHECK):
        name = check.removeprefix(CHECK)
        found = expected_gradients(problem, reference, answer)
        actual = (answer.gradients or {}).get(name)
        expected = found[name].value if name in found else None
    if expected is None or not is_numeric(actual):
        return None
    return as_float64(np.asarray(actual)), as_float64(expected)


def _placed(check_result: CheckResult, actual: Array, expected: Array, heads: int) -> Comparison:
    """Return the matrices that hold the worst number."""
    where = check_result.where or Place(0, NO_INDEX, 0, 0)
    cut, worst = _cut(check_result.check, actual.shape, where, heads)
    sample = f", sample {where.sample}" if where.sample >= 0 else ""
    head = f", head {where.head}" if where.head >= 0 else ""
    return Comparison(
        title=f"{check_result.check}{sample}{head}",
        actual=cut(actual),
        expected=cut(expected),
        worst=worst,
        fails=check_result.severity.fails,
        where=where,
    )


def _cut(
    check: str, shape: tuple[int, ...], where: Place, heads: int
) -> tuple[Callable[[Array], Array], tuple[int, int]]:
    """Return how to cut the matrix with the worst number out of an array, and its place there."""
    place = (where.row, where.column)
    if check.startswith(CHECK):
        return _cut_gradient(check, shape, where, heads)
    if check == "weights" and len(shape) == 4:
        return lambda array: np.asarray(array[where.sample, where.head]), place
    if check == "output" and where.head >= 0:
        width = shape[2] // heads
        part = slice(where.head * width, (where.head + 1) * width)
        return lambda array: np.asarray(array[where.sample, :, part]), place
    return lambda array: np.asarray(array[where.sample]), place


def _cut_gradient(
    check: str, shape: tuple[int, ...], where: Place, heads: int
) -> tuple[Callable[[Array], Array], tuple[int, int]]:
    """Return the same for a gradient, whose rows and columns are those of its array."""
    place = (where.row, where.column)
    if check.endswith("key_padding_mask"):
        return np.asarray, (where.sample, where.column)
    if len(shape) == 1:
        return lambda array: np.asarray(array[None]), (0, where.row + where.column)
    if len(shape) == 2 or where.sample < 0:
        return lambda array: np.asarray(array.reshape(-1, shape[-1])), place
    index = where.sample * heads + where.head if check.endswith("attn_mask") else where.sample
    return lambda array: np.asarray(array[index]), place
