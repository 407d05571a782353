"""Pictures of the failures on the page: attention weights, torch's, and the errors."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.clashes import can_coexist
from mha_parity.core.candidate import CandidateError, ask
from mha_parity.core.compare import as_float64
from mha_parity.core.report_arrays import WeightsPicture
from mha_parity.diagnose.read_weights import read_sample_weights
from mha_parity.judging.error_map import error_units
from mha_parity.oracle.torch_answers import asks_torch
from mha_parity.run.asked_cases import SingleCalls
from mha_parity.run.case_run import run_case

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer, Candidate
    from mha_parity.core.case import Case
    from mha_parity.core.check_result import CheckResult
    from mha_parity.core.problem import Problem
    from mha_parity.core.verdict import Failure
    from mha_parity.judging.output import JudgeSettings
    from mha_parity.oracle.reference import Reference
    from mha_parity.run.case_run import CaseResult

CHECKS = ("output", "weights")  # what a picture of weights and of the output's error can show
SHOWN = 3
# Sizes at which a picture says more than that of the smallest case, and can still be read.
POSITIONS = 9
HEADS = 3
HEAD_DIM = 5
TRIED = 4  # failing cases with finite numbers that are asked for a picture in place of NaN


def pictures(
    candidate: Candidate,
    failures: Iterable[Failure],
    settings: JudgeSettings,
    failing: Sequence[CheckResult] = (),
) -> tuple[WeightsPicture, ...]:
    """Return a picture of each failure that one can be made of, at sizes one can read.

    ``failing`` are the failing results of the run: where a failure has no number, a case that
    fails the same check by finite numbers shows more.
    """
    shrunk = [
        each
        for each in failures
        if each.shrunk_from is not None or (not asks_torch() and can_be_drawn(each.case))
    ]
    wanted = [failure for failure in shrunk if failure.check_result.check in CHECKS][:SHOWN]
    drawn = (
        _finite_picture(candidate, failure, settings, failing)
        or _picture(candidate, failure, settings)
        for failure in wanted
    )
    return tuple(picture for picture in drawn if picture is not None)


def can_be_drawn(case: Case) -> bool:
    """Return whether a picture can show the case: recorded answers have no other sizes of it."""
    return asks_torch() or at_picture_sizes(case) == case


def worst_passing(
    candidate: Candidate, worst: CheckResult | None, settings: JudgeSettings
) -> tuple[WeightsPicture, ...]:
    """Return what shows a run in which nothing failed: the case of its worst error, cut to size."""
    if worst is None:
        return ()
    case = at_picture_sizes(worst.case)
    if asks_torch() and candidate.offer["weights"] == ("none",):
        case = with_a_column_a_key(case)
    candidate = SingleCalls(candidate)
    case_result = run_case(candidate, case, settings)
    drawn = None if case_result.fails else draw_picture(candidate, case_result, settings)
    return () if drawn is None else (drawn,)


def draw_picture(
    candidate: Candidate, case_result: CaseResult, settings: JudgeSettings
) -> WeightsPicture | None:
    """Return the picture of a case's output and weights; None where there was no answer."""
    problem, reference, answer = case_result.problem, case_result.reference, case_result.answer
    if not (problem and reference and answer):
        return None
    return _drawn(candidate, "output", problem, reference, answer, settings)


def at_picture_sizes(case: Case) -> Case:
    """Return ``case`` with sizes that a picture can show."""
    most = {"queries": POSITIONS, "keys": POSITIONS, "head_dim": HEAD_DIM}
    if not case.kv_heads_count:
        most["heads_count"] = HEADS
    return case.replace(**{name: min(getattr(case, name), size) for name, size in most.items()})


def with_a_column_a_key(case: Case) -> Case:
    """Return the case with heads so wide that weights can be read: as many columns as keys."""
    if case.form == "qkv":
        return case
    return case.replace(head_dim=max(case.head_dim, math.ceil(case.keys / case.heads_count)))


def _picture(
    candidate: Candidate, failure: Failure, settings: JudgeSettings
) -> WeightsPicture | None:
    check = failure.check_result.check
    cases = (
        at_sizes_before_shrinking(failure.case, failure.shrunk_from or failure.case),
        failure.case,
    )
    for problem, reference, answer in failing_again(candidate, failure, cases, settings):
        return _drawn(candidate, check, problem, reference, answer, settings)
    return None


def _finite_picture(
    candidate: Candidate,
    failure: Failure,
    settings: JudgeSettings,
    failing: Sequence[CheckResult],
) -> WeightsPicture | None:
    """Return the picture of another case with finite wrong numbers; None where that is no use."""
    check_result = failure.check_result
    if check_result.where is None or math.isfinite(check_result.error):
        return None
    others = (
        each
        for each in failing
        if each.check == check_result.check
        and each.where is not None
        and math.isfinite(each.error)
        and min(each.case.queries, each.case.keys) >= 2
        and can_be_drawn(each.case)
    )
    for other in sorted(others, key=lambda each: len(each.case.id))[:TRIED]:
        like = dataclasses.replace(failure, check_result=other, case=other.case)
        cases = (at_picture_sizes(other.case),)
        for problem, reference, answer in failing_again(candidate, like, cases, settings):
            return _drawn(candidate, check_result.check, problem, reference, answer, settings)
    return None


def failing_again(
    candidate: Candidate, failure: Failure, cases: Iterable[Case], settings: JudgeSettings
) -> Iterator[tuple[Problem, Reference, Answer]]:
    """Yield what fails the same check in those of the cases that can be; where there is an answer.

    The failing case itself always can.
    """
    kind = failure.check_result.kind
    for case in dict.fromkeys(cases):
        if case != failure.case and not _can_be(case, candidate):
            continue
        case_result = run_case(candidate, case, settings)
        failed = any(each.kind == kind for each in case_result.check_results)
        if failed and case_result.problem and case_result.reference and case_result.answer:
            yield case_result.problem, case_result.reference, case_result.answer


def _can_be(case: Case, candidate: Candidate) -> bool:
    features = case.features()
    offered = all(value in candidate.offer[axis] for axis, value in features.items())
    return offered and can_coexist(features)


def at_sizes_before_shrinking(case: Case, shrunk_from: Case, head_dim: int = HEAD_DIM) -> Case:
    """Return ``case`` with the sizes at which it was first seen, as far as a picture shows them."""
    queries, keys = min(shrunk_from.queries, POSITIONS), min(shrunk_from.keys, POSITIONS)
    if case.inputs == "self":
        queries = keys = min(queries, keys)
    heads = case.heads_count
    if heads > 1 and not case.kv_heads_count:
        heads = max(heads, min(shrunk_from.heads_count, HEADS))
    return case.replace(
        queries=max(queries, case.queries),
        keys=max(keys, case.keys),
        heads_count=heads,
        head_dim=max(case.head_dim, min(shrunk_from.head_dim, head_dim)),
    )


def _drawn(
    candidate: Candidate,
    check: str,
    problem: Problem,
    reference: Reference,
    answer: Answer,
    settings: JudgeSettings,
) -> WeightsPicture | None:
    elements = error_units(problem, reference, answer, settings)
    if elements is None or not elements.size:
        return None
    units = elements.max(axis=3).swapaxes(1, 2)
    sample = int(units.max(axis=(1, 2)).argmax())
    weights, source = _weights(candidate, problem, answer, sample)
    averaged = weights is not None and len(weights) == 1 != problem.num_heads
    reference_weights = reference.averaged[:, None] if averaged else reference.weights
    return WeightsPicture(
        check=check,
        case=problem.case,
        sample=sample,
        averaged=averaged,
        source=source,
        candidate_weights=weights,
        reference_weights=np.asarray(reference_weights[sample], dtype=np.float64),
        error_units=units[sample],
    )


def _weights(
    candidate: Candidate, problem: Problem, answer: Answer, sample: int
) -> tuple[Array | None, str]:
    """Return the candidate's weights of one sample, (H, L, S') or (1, L, S'), and their source."""
    candidate = SingleCalls(candidate)
    queries, keys = problem.weights_shape[2:]
    returned = answer.weights
    if problem.case.weights != "per_head" and "per_head" in candidate.offer["weights"]:
        asking = problem.replace(case=problem.case.replace(weights="per_head"))
        again = next(ask(candidate, [asking]))
        returned = returned if isinstance(again, CandidateError) else again.weights
    if returned is not None:
        shown = as_float64(returned[sample])
        shown = shown[None] if shown.ndim == 2 else shown
        if shown.shape in {(problem.num_heads, queries, keys), (1, queries, keys)}:
            return shown, "as the target returns them"
    read = read_sample_weights(partial(ask, candidate), problem, sample)
    if read is not None:
        return read, "read out of the target's output, with rows of the identity as values"
    return None, "the target returns no weights, and they cannot be read out of its output"
