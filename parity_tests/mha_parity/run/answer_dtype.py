"""Answers of less precision than the inputs, by their dtype or by the size of their error."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.rng import numpy_dtype
from mha_parity.catalogue import catalogue
from mha_parity.core.check_result import Severity
from mha_parity.core.verdict import Diagnosis
from mha_parity.judging.output import judge_answer
from mha_parity.oracle.error_bound import roundoff
from mha_parity.oracle.reference import reference_answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mha_parity.core.candidate import Answer
    from mha_parity.core.options import Options
    from mha_parity.core.problem import Problem
    from mha_parity.run.case_run import CaseResult

NARROWER: Mapping[str, tuple[str, ...]] = {
    "float64": ("float32", "float16", "bfloat16"),
    "float32": ("float16", "bfloat16"),
}
INSIDE = "float32"  # the dtype usually used in place of float64
# Half-way, in powers of 2, from the unit of float32 to that of float64.
BETWEEN = (roundoff(np.dtype("float64")) / roundoff(np.dtype(INSIDE))) ** 0.5


def remark(answer_dtypes: Mapping[str, str], options: Options) -> str:
    """Say which dtype was not judged because a narrower one answers it, and how to demand it."""
    left_out = {dtype: own for dtype, own in answer_dtypes.items() if dtype not in options.dtypes}
    if not left_out:
        return ""
    asked, own = next(iter(left_out.items()))
    return (
        f"computes in {own}: {asked} inputs are answered in {own}, so that it was judged in {own} "
        f"(--dtypes {asked} demands {asked})"
    )


def is_narrower(case_result: CaseResult) -> bool:
    """Return whether the case was answered in a narrower dtype than it was asked in."""
    return case_result.answer_dtype in NARROWER.get(case_result.case.dtype, ())


def finding(case_results: Sequence[CaseResult]) -> str:
    """Say in which narrower dtype cases were answered, and how to judge it in that; "" if none."""
    narrower = [each for each in case_results if is_narrower(each)]
    if not narrower:
        return ""
    asked, own = narrower[0].case.dtype, narrower[0].answer_dtype
    return f"computes in {own} (judge it in that: --dtypes {own}), answers {asked} inputs in {own}"


def downcast(failing: Sequence[CaseResult]) -> tuple[Diagnosis, ...]:
    """Name answers in a narrower dtype than the inputs."""
    narrower = [each for each in failing if is_narrower(each)]
    if not narrower:
        return ()
    asked, own = narrower[0].case.dtype, narrower[0].answer_dtype
    bug = catalogue()["silent-downcast"]
    return (
        Diagnosis(
            bug=bug.id,
            title=f"computes in {own}: {asked} inputs are answered in {own}",
            remedy=f"{bug.remedy}, or judge it in {own}: --dtypes {own}",
            explains=len(narrower) / len(failing),
            confident=True,
            aliases=bug.aliases,
            evidence=f"{len(narrower)} of {len(failing)} failing answers have dtype {own}",
        ),
    )


def capped(failing: Sequence[tuple[Problem, Answer]]) -> tuple[Diagnosis, ...]:
    """Name float64 that is computed in float32: every failing answer is right by float32's bounds.

    Where an answer to another dtype fails, or one to float64 is wrong in float32 too, nothing; nor
    where their errors, in units of what float32 is allowed, are nearer to the digits of float64.
    """
    errors: list[float] = []
    for each in failing:
        error = _error_in(INSIDE, *each)
        if error is None:
            return ()
        errors.append(error)
    if not errors or np.median(errors) < BETWEEN:
        return ()
    bug = catalogue()["f64-capped-at-f32"]
    return (
        Diagnosis(
            bug=bug.id,
            title=bug.title,
            remedy=f"{bug.remedy}; --dtypes {INSIDE} judges the rest",
            explains=1.0,
            confident=True,
            aliases=bug.aliases,
            evidence=f"{len(failing)} of {len(failing)} failing answers to float64 are right by "
            "the bounds of float32",
            seen_in=", ".join(bug.sources[:3]),
        ),
    )


def _error_in(dtype: str, problem: Problem, answer: Answer) -> float | None:
    """Return the largest error of a failing answer to float64, over what is allowed in ``dtype``.

    None where it would not pass in that, or passes as it is.
    """
    if problem.case.dtype != "float64" or answer.output.dtype != problem.dtype or answer.notes:
        return None
    failed = [
        each
        for each in judge_answer(problem, reference_answer(problem), answer)
        if each.severity.fails
    ]
    if not failed:
        return None
    with np.errstate(over="ignore"):  # a number near the largest is infinite in fewer bits
        narrow, output = _cast(problem, dtype), answer.output.astype(dtype)
    if (np.isinf(output) & np.isfinite(answer.output)).any():
        return None
    weights = None if answer.weights is None else answer.weights.astype(dtype)
    found = dataclasses.replace(answer, output=output, weights=weights)
    results = judge_answer(narrow, reference_answer(narrow), found)
    severities = {each.severity for each in results}
    passing = {Severity.MATCH, Severity.LESS_ACCURATE, Severity.INCONCLUSIVE}
    if not severities <= passing or severities == {Severity.INCONCLUSIVE}:
        return None
    allowed = max((each.allowed for each in results if each.check == failed[0].check), default=0.0)
    return float(failed[0].error / allowed) if allowed else None


def _cast(problem: Problem, dtype: str) -> Problem:
    """Return the problem with its float arrays rounded to ``dtype``; one object stays one."""
    cast: dict[int, np.ndarray] = {}
    changes: dict[str, object] = {"case": problem.case.replace(dtype=dtype)}
    for field in dataclasses.fields(problem):
        array = getattr(problem, field.name)
        if isinstance(array, np.ndarray) and array.dtype == problem.dtype:
            changes[field.name] = cast.setdefault(id(array), array.astype(numpy_dtype(dtype)))
    return problem.replace(**changes)
