"""The failures that a report shows, each shrunk to its smallest case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.checks.call_effects import FURTHER
from mha_parity.core.features import EXTREME_VALUES
from mha_parity.core.verdict import Failure
from mha_parity.run.shrink import shrunk, with_every_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.core.candidate import Candidate
    from mha_parity.core.case import Case
    from mha_parity.core.check_result import CheckResult
    from mha_parity.judging.output import JudgeSettings
    from mha_parity.run.case_run import CaseResult
    from mha_parity.run.repro import Repro

SHOWN = 3  # failures shrunk and shown in full, each of another check or severity


def failures_of(
    candidate: Candidate,
    failing: Sequence[CaseResult],
    run_check_results: Sequence[CheckResult],
    settings: JudgeSettings,
    repro: Repro,
    *,
    shrink: bool,
) -> tuple[Failure, ...]:
    """Return one failure for each check and severity, that of the plainest case, shrunk.

    What float32 in place of float64 explains counts as a severity of its own, the least.
    """
    first: dict[tuple[str, str, bool], CheckResult] = {}
    for case_result in sorted(failing, key=_plainness):
        by_float32 = case_result.right_by_float32
        for each in case_result.check_results:
            if each.severity.fails:
                first.setdefault((each.check, each.severity.value, by_float32), each)
    # A further call has sizes of its own, and a smaller case no smaller ones.
    found = [(each, key[-1]) for key, each in first.items() if each.check != FURTHER]
    most = SHOWN if shrink else 0
    full = [
        _failure(
            shrunk(candidate, each, settings, by_float32=by_float32), repro, shrunk_from=each.case
        )
        for each, by_float32 in found[:most]
    ]
    further = (each for each in first.values() if each.check == FURTHER)
    others = (with_every_order(candidate, each, settings) for each, _ in found[most:])
    plain = [_failure(each, repro) for each in (*others, *further)]
    whole_run = [
        Failure(check_result=each, case=each.case, replay=repro.run())
        for each in run_check_results
        if each.severity.fails
    ]
    return tuple(full + plain + whole_run)


def _plainness(failing: CaseResult) -> tuple[bool, bool, bool, int]:
    """Return what is smaller for plainer cases: one without rows or keys shows no other defect."""
    case = failing.case
    is_empty = 0 in {case.batch, case.queries, case.keys}
    is_extreme = case.regime in EXTREME_VALUES
    return is_extreme, failing.right_by_float32, is_empty, len(case.id)


def _failure(check_result: CheckResult, repro: Repro, shrunk_from: Case | None = None) -> Failure:
    return Failure(
        check_result=check_result,
        case=check_result.case,
        replay=repro.case(check_result.case.id),
        shrunk_from=shrunk_from,
    )
