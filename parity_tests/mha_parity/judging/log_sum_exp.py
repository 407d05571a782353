"""Judge the log-sum-exp of each row that comes with the output, by its rounding-error bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.arrays import log_sum_exp, split_heads
from mha_parity.core.check_result import LOG_SUM_EXP, NO_INDEX, CheckResult, Place, Severity
from mha_parity.core.compare import as_float64, in_unlike_digits
from mha_parity.oracle.error_bound import ErrorModel, bound, bound_with_model, roundoff

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem
    from mha_parity.oracle.reference import Reference


def judge_log_sum_exp(
    problem: Problem, reference: Reference, answer: Answer
) -> Iterator[CheckResult]:
    """Yield the check result on the log-sum-exp of an answer, where it has one.

    Rows that see no key are not judged, nor those whose output is no number or of which the bound
    says nothing, as beyond the range of float16. A dtype of its own costs one rounding.
    """
    found = answer.log_sum_exp
    if found is None:
        return
    with np.errstate(all="ignore"):
        expected = log_sum_exp(reference.logits)
        judged = np.isfinite(expected) & _has_numbers(problem, answer)
        allowed = _allowed(problem, reference) + roundoff(found.dtype) * np.abs(expected)
        judged &= np.isfinite(allowed)
        error = np.where(judged, np.abs(found.astype(expected.dtype) - expected), 0)
    if not judged.any():
        return
    wrong = ~(error <= allowed) & judged
    units = np.where(judged, np.nan_to_num(error / allowed, nan=np.inf), 0)
    index = np.unravel_index(int(units.argmax()), units.shape)
    sample, head, row = map(int, index)
    where = Place(sample, head, row, NO_INDEX)
    numbers = {"error": float(error[index]), "allowed": float(allowed[index]), "where": where}
    if not wrong.any():
        yield _result(problem, Severity.MATCH, **numbers)
        return
    shown, wanted = in_unlike_digits(float(found[index]), float(expected[index]))
    detail = (
        f"{LOG_SUM_EXP} is {shown} at {where}, but should be {wanted}; no rounding explains it."
    )
    yield _result(problem, Severity.WRONG, detail=detail, **numbers)


def _result(problem: Problem, severity: Severity, **rest: object) -> CheckResult:
    return CheckResult(case=problem.case, check=LOG_SUM_EXP, severity=severity, **rest)  # type: ignore[arg-type]  # fields vary in type


def _allowed(problem: Problem, reference: Reference) -> Array:
    """Return the bound, (N, H, L); of 16-bit dtypes that of sums in 16 bits."""
    if problem.dtype.itemsize > 2:
        return bound(problem, reference).log_sum_exp
    unit = roundoff(problem.dtype)
    step = float(np.finfo(np.float32).tiny)
    return bound_with_model(ErrorModel(unit, unit, step), problem, reference).log_sum_exp


def _has_numbers(problem: Problem, answer: Answer) -> Array:
    """Return which rows have an output without NaN and infinity, (N, H, L)."""
    if answer.output.shape != problem.output_shape:
        return np.ones(problem.weights_shape[:-1], dtype=bool)
    heads = split_heads(as_float64(answer.output), problem.num_heads)
    return np.asarray(np.isfinite(heads).all(axis=-1))
