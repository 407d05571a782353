"""Run one case: ask candidate and oracle, and judge the answers and one relation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import tee
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.checks.call_effects import FURTHER, LAYOUT
from mha_parity.checks.metamorphic import judge_relation, scheduled_relation
from mha_parity.core.candidate import Answer, CandidateError, ask
from mha_parity.core.check_result import PADDED_QUERIES, CheckResult, Severity
from mha_parity.core.compare import as_float64, difference_said
from mha_parity.core.features import EXTREME_VALUES
from mha_parity.core.padded_queries import padded_rows
from mha_parity.core.threads import blas_in_one_thread
from mha_parity.judging import power
from mha_parity.judging.accuracy import TORCH_PATHS, measure_errors, with_times_torch
from mha_parity.judging.equal_answers import may_both_match
from mha_parity.judging.float32_stages import float32_units
from mha_parity.judging.gradients import CHECK, judge_gradients
from mha_parity.judging.nonfinite import overflow_rows, sum_overflow_rows
from mha_parity.judging.output import OVERFLOWING, OVERFLOWS, SUM_OVERFLOWS, judge_answer
from mha_parity.oracle.error_bound import output_bound
from mha_parity.oracle.reference import reference_answer
from mha_parity.oracle.torch_answers import active_record, problem_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mha_parity.checks.metamorphic import RelatedProblem
    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Candidate
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.judging.accuracy import MeasuredError
    from mha_parity.judging.output import JudgeSettings
    from mha_parity.oracle.reference import Reference

# Torch's own error in the same dtype is measured where seed % 4 == 0, that of all paths where
# seed % 16 == 0.
ACCURACY_EVERY = 4
PATHS_EVERY = 16
# What says something of a run rather than of a case (power, accuracy, sums of signed errors) shows
# in hundreds of cases: a run is measured on its first 2000 cases, then on every fifth.
ALL_OF, THEN_EVERY = 2000, 5

ANSWERED = "call completes"
_NO_ANSWER = {Severity.CRASH, Severity.TIMEOUT, Severity.INCONCLUSIVE}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CaseResult:
    """The results of one case.

    ``exposes``: the gross errors that this case would have shown; None where not measured.
    ``seconds``: how long the target took to answer, or was waited for. ``answer_dtype``: that of
    the output; empty without an answer. ``held``: the checks around the call that found nothing,
    and in a long run others that did not (``kept``). ``float32_units``: the error, in units of what
    float32 is allowed, of a failing answer to float64 that is right by the bounds of float32.
    """

    case: Case
    check_results: tuple[CheckResult, ...]
    exposes: frozenset[str] | None = frozenset()
    measured: tuple[MeasuredError, ...] = ()
    problem: Problem | None = None
    reference: Reference | None = None
    answer: Answer | None = None
    seconds: float = 0.0
    remarks: tuple[str, ...] = ()
    parameters: Mapping[str, bool] = field(default_factory=dict)
    answer_dtype: str = ""
    held: tuple[str, ...] = ()
    float32_units: float | None = None

    @property
    def fails(self) -> bool:
        """Whether any check of the case failed."""
        return any(check_result.severity.fails for check_result in self.check_results)

    @property
    def fails_forward(self) -> bool:
        """Whether a check of anything but gradients failed."""
        failing = (each.check for each in self.check_results if each.severity.fails)
        return not all(check.startswith(CHECK) for check in failing)

    @property
    def leaves_out_rows(self) -> bool:
        """Whether rows of padded queries are others than torch's, and were not judged."""
        return any(each.check == PADDED_QUERIES for each in self.check_results)

    @property
    def right_by_float32(self) -> bool:
        """Whether the case fails, and float32 in place of float64 explains it."""
        return self.float32_units is not None

    @property
    def fails_by_numbers(self) -> bool:
        """Whether the answer fails by nothing but wrong numbers."""
        return self._fails_by == {Severity.WRONG}

    def fails_by_numbers_and(self, check: str) -> bool:
        """Whether the case fails by wrong numbers, or by this check, and by nothing else."""
        others = (each for each in self.check_results if each.check != check)
        return {each.severity for each in others if each.severity.fails} <= {Severity.WRONG}

    @property
    def only_timed_out(self) -> bool:
        """Whether the case fails by nothing but the time that its calls took."""
        return self._fails_by == {Severity.TIMEOUT}

    @property
    def _fails_by(self) -> set[Severity]:
        return {each.severity for each in self.check_results if each.severity.fails}

    @property
    def inconclusive(self) -> bool:
        """Whether nothing failed, but something could not be judged."""
        severities = {check_result.severity for check_result in self.check_results}
        return not self.fails and Severity.INCONCLUSIVE in severities

    @property
    def answered(self) -> bool:
        """Whether a call of the case came back, with whatever answer."""
        return bool(self.held) or any(
            each.check != ANSWERED or each.severity not in _NO_ANSWER for each in self.check_results
        )

    def without_arrays(self, *, with_answer: bool = False) -> CaseResult:
        """Return the result without its arrays, or all but the answer, as a long run keeps it."""
        answer = self.answer if with_answer else None
        return replace(self, problem=None, reference=None, answer=answer)


def is_measured(place: int) -> bool:
    """Return whether the case at this place of a run is among those that the run is measured on."""
    return place < ALL_OF or place % THEN_EVERY == 0


def run_cases(
    candidate: Candidate,
    cases: Sequence[Case],
    settings: JudgeSettings,
    first: int = 0,
    step: int = 1,
) -> Iterator[CaseResult]:
    """Yield the result of each case; a candidate in another process computes while the oracle does.

    ``first`` is the place of the first of them in the run, ``step`` the distance to the next. The
    relation asked of a case follows from its seed, so that a case alone behaves as in a run.
    """
    own = candidate.facts.own_weights
    problems = (problem_of(case, own) for case in cases)
    pairs, to_ask = tee((problem, scheduled_relation(problem)) for problem in problems)
    answers = ask(candidate, _each_asked(to_ask))
    for place, (problem, relation) in enumerate(pairs):
        with blas_in_one_thread():
            reference = reference_answer(problem)
        answer = next(answers)
        others = [(*relation, next(answers))] if relation else []
        measure = is_measured(first + step * place)
        with blas_in_one_thread():
            judged = _judged(problem, reference, answer, others, settings, measure=measure)
        yield judged


def _each_asked(
    pairs: Iterable[tuple[Problem, tuple[str, RelatedProblem] | None]],
) -> Iterator[Problem]:
    """Yield each problem, and behind it the one that its relation compares with."""
    for problem, relation in pairs:
        yield problem
        if relation:
            yield relation[1].problem


def run_case(candidate: Candidate, case: Case, settings: JudgeSettings) -> CaseResult:
    """Return the result of one case."""
    return next(run_cases(candidate, [case], settings))


def _judged(
    problem: Problem,
    reference: Reference,
    answer: Answer | CandidateError,
    others: list[tuple[str, RelatedProblem, Answer | CandidateError]],
    settings: JudgeSettings,
    *,
    measure: bool,
) -> CaseResult:
    case = problem.case
    if isinstance(answer, CandidateError):
        judged = (failed_call(case, answer),)
        return CaseResult(
            case=case,
            check_results=judged,
            problem=problem,
            reference=reference,
            seconds=answer.seconds,
        )
    check_results = [
        *judge_answer(problem, reference, answer, settings),
        *_call_effects(problem, reference, answer),
    ]
    # Rows that were left out have no gradient, relation or error that could be judged.
    overflows = any(
        each.detail in OVERFLOWING or each.check == PADDED_QUERIES for each in check_results
    )
    if case.gradients == "yes" and not overflows:
        check_results += judge_gradients(problem, reference, answer, settings)
    if not overflows and not any(check_result.severity.fails for check_result in check_results):
        for other in others:
            bound = _bound_of_rows(problem, reference, settings)
            check_results.append(_related(problem, bound, answer, *other))
    accuracy: tuple[MeasuredError, ...] = ()
    if measure and not overflows and case.regime not in EXTREME_VALUES:
        accuracy = _measured(problem, reference, answer, check_results)
    return CaseResult(
        case=case,
        check_results=tuple(with_times_torch(problem, reference, answer, check_results, accuracy)),
        measured=accuracy,
        exposes=_exposed(problem, reference) if measure else None,
        problem=problem,
        reference=reference,
        answer=answer,
        seconds=answer.seconds,
        remarks=answer.remarks,
        parameters=answer.parameters,
        answer_dtype=getattr(answer.output, "dtype", np.dtype("V")).name,
        held=answer.held,
        float32_units=float32_units(problem, answer, check_results),
    )


def _exposed(problem: Problem, reference: Reference) -> frozenset[str]:
    """Return the gross errors that the case exposes: recorded, else computed."""
    record = active_record()
    known = None if record is None else record.exposed.get(problem.case)
    return power.exposed_errors(problem, reference) if known is None else known


def failed_call(case: Case, failure: CandidateError) -> CheckResult:
    """Return the check result on a call that gave no usable answer."""
    detail = f"{failure}\n{failure.detail}".rstrip()
    return CheckResult(
        case=case, check=ANSWERED, severity=Severity(failure.severity), detail=detail
    )


def _call_effects(problem: Problem, reference: Reference, answer: Answer) -> Iterator[CheckResult]:
    """Yield a failed check for every note on the call, ``name: sentence``.

    Libraries add in another order over arrays that are not contiguous: answers to both may differ
    by what both may err.
    """
    case = problem.case
    for note in answer.notes:
        name, _, sentence = note.partition(": ")
        if name == LAYOUT and may_both_match(problem, reference, difference_said(sentence)):
            continue
        yield CheckResult(case=case, check=name, severity=Severity.BROKEN, detail=sentence)
    for severity, sentence in answer.lost:
        yield CheckResult(case=case, check=FURTHER, severity=Severity(severity), detail=sentence)


def _measured(
    problem: Problem, reference: Reference, answer: Answer, check_results: list[CheckResult]
) -> tuple[MeasuredError, ...]:
    """Return the errors of the target and of torch's paths, where the seed schedules it."""
    seed = problem.case.seed
    fails = any(each.severity.fails for each in check_results if each.check == "output")
    if fails or seed % ACCURACY_EVERY:
        return ()
    return measure_errors(
        problem, reference, answer.output, paths=() if seed % PATHS_EVERY else TORCH_PATHS
    )


def _bound_of_rows(problem: Problem, reference: Reference, settings: JudgeSettings) -> Array:
    """Return the bound of the output, NaN in rows of padded queries, which no one reads.

    In 16 bits it may be too wide to say that they are others than torch's.
    """
    bound = output_bound(problem, reference)
    rows = padded_rows(problem, one_length=settings.one_length)
    if rows is None or settings.strict_padding:
        return bound
    return np.where(rows[..., None], np.nan, bound)


def _related(
    problem: Problem,
    bound: Array,
    first: Answer,
    name: str,
    related: RelatedProblem,
    second: Answer | CandidateError,
) -> CheckResult:
    if isinstance(second, CandidateError):
        return failed_call(problem.case, second)
    found = judge_relation(problem, bound, first.output, second.output, name, related)
    if not found.severity.fails or problem.dtype != np.float16:
        return found
    other = reference_answer(related.problem)
    finite = all(np.isfinite(as_float64(each.output)).all() for each in (first, second))
    if overflow_rows(related.problem, other).any():
        return replace(found, severity=Severity.INCONCLUSIVE, detail=OVERFLOWS)
    if not finite and sum_overflow_rows(related.problem, other).any():
        return replace(found, severity=Severity.INCONCLUSIVE, detail=SUM_OVERFLOWS)
    return found
