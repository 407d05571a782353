"""The diagnosis of failing cases: the dtype of the answers first, then their values."""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from mha_parity.checks.call_effects import LAYOUT
from mha_parity.core.features import DTYPES, PLAIN
from mha_parity.core.verdict import Diagnosis
from mha_parity.judging.float32_stages import INSIDE
from mha_parity.oracle.torch_answers import asks_torch
from mha_parity.run import answer_dtype
from mha_parity.run.asked_cases import NarrowedCandidate, OwnWeightsAlone, SingleCalls
from mha_parity.run.case_run import ANSWERED, run_cases
from mha_parity.run.demanded_rows import by_demand, fails_by_rows_alone
from mha_parity.run.fresh_process import CHECK as STATELESSNESS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mha_parity.core.candidate import Answer, Candidate
    from mha_parity.core.case import Case
    from mha_parity.core.check_result import CheckResult
    from mha_parity.core.problem import Problem
    from mha_parity.judging.output import JudgeSettings
    from mha_parity.run.case_run import CaseResult

ALONE = 16  # failing cases of which none is of float64
LEAST = 8  # columns of a case that shows a pattern of errors, if there is one
FAILURES = 24  # failing cases that are asked again in a narrower dtype, or judged in one
KEPT = "an earlier call changes the answer to a later one"
LOST = (
    "the diagnosis itself failed ({}), and names nothing; the verdict stands without it: please "
    "report the lines on the error output, with the target."
)


def diagnosed_or_reason(
    *asked: Any, **options: Any
) -> tuple[tuple[Diagnosis, ...], tuple[str, ...]]:
    """Return what ``diagnosed`` does, and no note; of a mistake in it none, and a note on that.

    A verdict that cost minutes is not lost by what was to explain it.
    """
    try:
        return diagnosed(*asked, **options), ()
    except Exception as error:  # noqa: BLE001  (any mistake of ours, which the note reports)
        traceback.print_exc()
        return (), (LOST.format(f"{type(error).__name__}: {error}"),)


def diagnosed(
    candidate: Candidate,
    failing: list[CaseResult],
    settings: JudgeSettings,
    over_run: Sequence[CheckResult] = (),
    shrunk: Sequence[Case] = (),
    exact: int = 0,
) -> tuple[Diagnosis, ...]:
    """Return the name of the bug, or what was measured; nothing where there was no answer.

    Rows that see no key and are not as asked for are no bug: such cases are said by themselves.
    Cases answered in a narrower dtype are asked again in that: what fails there has another cause.
    What one failing case needs is held against the ``shrunk`` ones. ``exact``: how many cases of
    float64 hold in which a bug could have shown.
    """
    # The products of a diagnosis are many and small: threads that wait for each other's cores take
    # three times the processor time. Of rows that see no key all scores are -inf, and their
    # differences are NaN, which fits nothing.
    with threadpool_limits(1), np.errstate(invalid="ignore"):
        found = _diagnosed(candidate, failing, settings, shrunk, exact)
    state = next((each for each in over_run if each.check == STATELESSNESS), None)
    if state is None or any(each.bug and each.confident for each in found):
        return found
    from mha_parity.diagnose.experiments.conditions.state import KEEP_NOTHING

    # What was measured of such a target depends on the calls before.
    kept = Diagnosis(bug=None, title=KEPT, remedy=KEEP_NOTHING, explains=0.0, evidence=state.detail)
    return (kept, *(each for each in found if each.bug))


def _diagnosed(
    candidate: Candidate,
    failing: list[CaseResult],
    settings: JudgeSettings,
    shrunk: Sequence[Case],
    exact: int,
) -> tuple[Diagnosis, ...]:
    rows = [each for each in failing if fails_by_rows_alone(each)]
    failing = [each for each in failing if not fails_by_rows_alone(each)]
    demanded = by_demand(rows, settings.fully_masked, promised=settings.promised)
    if rows and not failing:
        return demanded
    narrower = [each for each in failing if asks_torch() and answer_dtype.is_narrower(each)]
    cases = [each.case.replace(dtype=each.answer_dtype) for each in narrower[:FAILURES]]
    others = [each for each in failing if not answer_dtype.is_narrower(each)]
    others += [each for each in run_cases(candidate, cases, settings) if each.fails]
    found = answer_dtype.downcast(failing)
    if misread := answer_dtype.misread_masks(candidate, others):
        return (*found, *misread, *demanded)
    if capped := _capped(candidate, others, exact):
        found = (*found, *_besides(candidate, others, capped, settings, shrunk))
    else:
        asked = [each.dtype for each in cases] or _without_float64(others)
        found = (*found, *_named(_offering(candidate, asked), others, shrunk))
    return (*found, *demanded)


def _capped(candidate: Candidate, failing: list[CaseResult], exact: int) -> tuple[Diagnosis, ...]:
    """Name float64 computed in float32, where the plainest such answer errs without a pattern.

    A formula that is off by as little is right by the bounds of float32 as well, and so may be the
    answers to a few cases of a gross error: then more answers to float64 are ``exact``. Of three
    signs two have to hold: the errors of the case have no pattern, all answers that fail are right
    by float32, and no more are exact.
    """
    from mha_parity.diagnose import errs_by_rounding

    forward = [each for each in failing if each.fails_forward]
    found = answer_dtype.capped(forward)
    if not found:
        return ()
    plainest = min(
        (each.case for each in forward if each.right_by_float32),
        key=lambda case: (case.regime != PLAIN["regime"], case.embed_dim < LEAST, len(case.id)),
    )
    by_rounding = errs_by_rounding(SingleCalls(candidate), plainest)
    rounded = sum(each.right_by_float32 for each in forward)
    signs = (bool(by_rounding), rounded == len(forward), rounded >= exact)
    return found if by_rounding is not False and sum(signs) > 1 else ()


def _besides(
    candidate: Candidate,
    failing: list[CaseResult],
    capped: tuple[Diagnosis, ...],
    settings: JudgeSettings,
    shrunk: Sequence[Case],
) -> tuple[Diagnosis, ...]:
    """Return ``capped``, behind what fails in float32 and in half too.

    Where there is no such failure, a sure name says more of what is capped.
    """
    rest = [each for each in failing if not each.right_by_float32]
    # Of another memory layout the roundings of float32 are others, too.
    of_float64 = (each for each in rest if each.case.dtype == "float64")
    wide = [each for each in of_float64 if each.fails_by_numbers_and(LAYOUT)]
    cases = [each.case.replace(dtype=INSIDE) for each in wide[:FAILURES]]
    others = [each for each in rest if each not in wide]
    others += [each for each in run_cases(candidate, cases, settings) if each.fails]
    if others:
        dtypes = (*candidate.offer["dtype"], *(each.case.dtype for each in others))
        narrower = _offering(candidate, (each for each in dtypes if each != "float64"))
        return (*_named(narrower, others, shrunk), *capped)
    named = _named(candidate, failing, shrunk)
    sure = named and named[0].bug and named[0].confident
    return named if sure else tuple(replace(each, explains=1.0) for each in capped)


def _without_float64(failing: Sequence[CaseResult]) -> list[str]:
    """Return the dtypes that fail, widest first, where many do and float64 never; else none.

    Of four dtypes drawn alike as many failures miss one by chance once in a hundred runs.
    """
    dtypes = {each.case.dtype for each in failing}
    if len(failing) < ALONE or "float32" not in dtypes or "float64" in dtypes:
        return []
    return [each for each in DTYPES if each in dtypes]


def _offering(candidate: Candidate, dtypes: Iterable[str]) -> Candidate:
    """Return the candidate for a diagnosis in these dtypes, if there are any."""
    chosen = tuple(dict.fromkeys(dtypes))
    return (
        NarrowedCandidate(candidate, {**candidate.offer, "dtype": chosen}) if chosen else candidate
    )


def _named(
    candidate: Candidate, failing: list[CaseResult], shrunk: Sequence[Case]
) -> tuple[Diagnosis, ...]:
    """Return the name of what makes answered cases fail.

    What fails in gradients alone has a right output, and is named by its gradients where that is
    most of the cases: in a few, a wrong formula moved the output by less than rounding.
    """
    own = candidate.facts.own_weights
    if own is not None and not own.built:
        candidate = OwnWeightsAlone(candidate, candidate.offer)
    candidate = SingleCalls(candidate)
    answered = [
        case_result
        for case_result in failing
        if case_result.problem is not None and case_result.answer is not None
    ]
    from mha_parity.diagnose import diagnose, gradients

    forward, backward = (_pairs(answered, fails_forward=flag) for flag in (True, False))
    silent = sum(any(each.check == ANSWERED for each in t.check_results) for t in failing)
    found: tuple[Diagnosis, ...] = ()
    if forward or (silent and not backward):
        found = diagnose(candidate, forward, crashes=bool(silent), shrunk=shrunk)
    if len(backward) > len(forward):
        backwards = gradients.name_wrong_gradients(candidate, backward)
        # What was not understood of the few other cases adds nothing to a cause.
        found = (*backwards, *(each for each in found if each.explains or not backwards))
    return with_unanswered(found, silent) if silent and answered else found


def with_unanswered(found: tuple[Diagnosis, ...], silent: int) -> tuple[Diagnosis, ...]:
    """Return diagnoses whose evidence ends with how many failing cases gave no answer."""
    cases = "1 failing case" if silent == 1 else f"{silent} failing cases"
    said = f"{cases} gave no answer to compare"
    return tuple(
        replace(each, evidence="; ".join(filter(None, (each.evidence.rstrip("."), said))))
        for each in found
    )


def _pairs(answered: list[CaseResult], *, fails_forward: bool) -> list[tuple[Problem, Answer]]:
    """Return problems and answers of the cases that fail forward, or in gradients alone."""
    chosen = [each for each in answered if each.fails_forward is fails_forward]
    return [(t.problem, t.answer) for t in chosen if t.problem and t.answer]
