"""From the results of all cases to the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.core.verdict import Failure, Verdict
from mha_parity.run import accuracy_rows, answer_dtype, recorded_answers, summary, torch_changes
from mha_parity.run.asked_cases import asked_without_options, narrowed_candidate, settings_of
from mha_parity.run.diagnosis_run import diagnosed_or_reason
from mha_parity.run.failures import failures_of
from mha_parity.run.gradient_pictures import gradient_pictures
from mha_parity.run.overflow import is_remark
from mha_parity.run.verdict_limits import not_served_remarks
from mha_parity.run.weights_pictures import can_be_drawn, pictures, worst_passing

if TYPE_CHECKING:
    from mha_parity.core.candidate import Candidate
    from mha_parity.core.check_result import CheckResult
    from mha_parity.core.features import Offer
    from mha_parity.core.options import Options
    from mha_parity.core.report_arrays import WeightsPicture
    from mha_parity.judging.output import JudgeSettings
    from mha_parity.run.case_run import CaseResult
    from mha_parity.run.repro import Repro


def build_verdict(
    candidate: Candidate,
    options: Options,
    target: str,
    repro: Repro,
    case_results: list[CaseResult],
    run_check_results: list[CheckResult],
    offer: Offer,
    *,
    ended: bool = False,
) -> Verdict:
    """Return the verdict over the results of all cases, and of the checks over the run.

    ``ended``: no further case was asked after the last failure.

    Raises
    ------
    ValueError
        Not one case was answered.

    """
    summary.refuse_unanswered(
        target, candidate.convention, case_results, candidate.facts.lost_trial
    )
    facts = candidate.facts
    stopped = ended and len(case_results) < options.cases
    rows = summary.feature_rows(
        case_results, offer, candidate.offer, facts.reasons, stopped=stopped,
        whole=asked_without_options(candidate, options),
    )  # fmt: skip
    parameters = summary.parameters_with_status(facts.parameters, case_results, options)
    notes = (
        *recorded_answers.recorded_answers_remark(),
        *torch_changes.path_change_notes(target, [result.case for result in case_results]),
        *not_served_remarks(candidate, options, offer, case_results),
        *summary.verdict_notes(case_results, parameters),
        *(each.detail for each in run_check_results if is_remark(each)),
    )
    over_run = [each for each in run_check_results if not is_remark(each)]
    check_results = [each for result in case_results for each in result.check_results]
    check_results += run_check_results
    failing = [result for result in case_results if result.fails]
    run_fails = any(each.severity.fails for each in over_run)
    most = options.max_times_torch
    asked, settings = (
        narrowed_candidate(candidate, offer, options),
        settings_of(options, candidate),
    )
    failures = failures_of(asked, failing, over_run, settings, repro, shrink=options.shrink)
    diagnosis, lost = diagnosed_or_reason(
        asked, failing, settings, over_run, [each.case for each in failures],
        sum(map(_is_exact, case_results)),
    ) if options.diagnose else ((), ())  # fmt: skip
    return Verdict(
        target=target,
        convention=candidate.convention,
        outcome=summary.outcome(case_results, rows, parameters, run_fails, most),
        improbable=summary.improbable(case_results, most),
        run=len(case_results),
        drawn=options.cases,
        stopped_early=stopped,
        passed=sum(not (result.fails or result.inconclusive) for result in case_results),
        failed=len(failing),
        inconclusive=sum(result.inconclusive for result in case_results),
        reasons=summary.reasons(case_results),
        features=rows,
        parameters=parameters,
        checks=summary.check_rows(case_results, over_run),
        failures=failures,
        diagnosis=diagnosis,
        accuracy=accuracy_rows.accuracies(case_results),
        accuracy_table=accuracy_rows.accuracy_table(case_results),
        worst=summary.worst(check_results),
        sensitivity=summary.exposing_cases(case_results),
        measured_cases=summary.measured_cases(case_results),
        notes=(*notes, *lost),
        dtype_finding=answer_dtype.finding(failing),
        pictures=_pictures(asked, failures, check_results, settings) if options.draw else (),
        case_errors=accuracy_rows.case_errors(case_results) if options.draw else (),
        gradient_pictures=gradient_pictures(asked, failures if options.draw else (), settings),
    )  # fmt: skip


def _is_exact(result: CaseResult) -> bool:
    """Return whether a case of float64 holds in which a bug could have shown."""
    holds = not (result.fails or result.inconclusive)
    return holds and result.case.dtype == "float64" and result.exposes != frozenset()


def _pictures(
    candidate: Candidate,
    failures: tuple[Failure, ...],
    check_results: list[CheckResult],
    settings: JudgeSettings,
) -> tuple[WeightsPicture, ...]:
    """Return what the page draws of the failures, or of the case that came closest to one."""
    if failures:
        failing = [each for each in check_results if each.severity.fails]
        return pictures(candidate, failures, settings, failing)
    worst = summary.worst(each for each in check_results if can_be_drawn(each.case))
    return worst_passing(candidate, worst, settings)
