"""A target that hangs costs three time-outs in a run, and three while it is shrunk."""

from __future__ import annotations

import time

import pytest

from mha_parity.core.candidate import NOT_ASKED, TargetError
from mha_parity.core.case import Case
from mha_parity.core.check_result import CheckResult, Severity
from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome, Verdict
from mha_parity.run import summary
from mha_parity.run.case_run import ANSWERED, CaseResult
from mha_parity.run.check import check
from mha_parity.worker.client import isolated
from mha_parity.worker.losses import TIMEOUTS
from subject_checks import SUBJECTS

TIMEOUT = 1.5


def judged(name: str, cases: int = 60, timeout: float = TIMEOUT) -> tuple[Verdict, float]:
    """Return the verdict on a subject in a process of its own, and how long it took."""
    target = f"{SUBJECTS}/{name}"
    started = time.monotonic()
    with isolated(target, timeout=timeout) as candidate:
        options = Options(cases=cases, dtypes=("float64",), diagnose=False)
        verdict = check(candidate, options, target=target)
    return verdict, time.monotonic() - started


def test_a_target_that_always_hangs_costs_three_timeouts() -> None:
    """One while it is probed and one for each of two cases; nothing of it can be judged."""
    started = time.monotonic()
    with pytest.raises(TargetError, match=f"called as .*: gave no answer within {TIMEOUT} s"):
        judged("misbehaving.py:hangs")
    seconds = time.monotonic() - started
    assert TIMEOUTS * TIMEOUT <= seconds < 20 * TIMEOUT  # 60 of them where each case waits


def test_small_calls_that_do_not_end_are_said_where_the_cases_end_otherwise() -> None:
    """What its signature alone makes of it raises, and is no mistake of the target."""
    said = f"one gave no answer within {TIMEOUT} s.*by its signature alone, it raised TypeError"
    with pytest.raises(TargetError, match=said):
        judged("misbehaving_layers.py:HangsOnceBuilt")


def test_a_target_that_hangs_now_and_then_is_judged_by_the_other_cases() -> None:
    """Each time-out fails its case; after the last that is allowed no further case is asked.

    The run is inconclusive, since a slow target may be right. Kills the verdict by the clock.
    """
    verdict, seconds = judged("misbehaving.py:hangs_now_and_then", cases=70)
    (failure,) = verdict.failures
    assert (TIMEOUTS, "timeout") == (verdict.failed, failure.check_result.severity.value)
    assert f"within {TIMEOUT:g} seconds" in failure.check_result.detail
    assert 1 == failure.case.heads_count
    assert failure.case.keys > 64
    (note,) = verdict.notes
    assert f"{verdict.inconclusive} cases: {NOT_ASKED}" in note
    assert f"lost {TIMEOUTS} times" in note
    assert verdict.passed == 70 - TIMEOUTS - verdict.inconclusive > 0
    assert seconds < 70 * TIMEOUT / 3
    assert Outcome.INCONCLUSIVE is verdict.outcome
    said = f"gave no answer within {TIMEOUT:g} seconds in {TIMEOUTS} of 70 cases; raise --timeout"
    assert said in verdict.sentence


def _answers(asked: int, timed_out: int, wrong: int) -> list[CaseResult]:
    """Return results of cases: right, without an answer in time, wrong."""
    severities = {Severity.MATCH: asked, Severity.TIMEOUT: timed_out, Severity.WRONG: wrong}
    case = Case(seed=1, batch=1, queries=2, keys=2, heads_count=1, head_dim=2)
    return [
        CaseResult(
            case=case,
            check_results=(CheckResult(case=case, check=ANSWERED, severity=severity),),
        )
        for severity, count in severities.items()
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((10, 3, 0), Outcome.INCONCLUSIVE),
        ((2, 3, 0), Outcome.FAIL),
        ((10, 3, 1), Outcome.FAIL),
        ((10, 0, 0), Outcome.PASS),
    ],
    ids=["some", "most", "wrong as well", "none"],
)
def test_time_outs_alone_fail_a_run_where_they_are_most(
    counts: tuple[int, int, int], expected: Outcome
) -> None:
    """Fewer leave it open; a wrong answer fails whatever else. Kills each of the conditions."""
    assert expected is summary.outcome(_answers(*counts), (), (), run_check_failed=False)


@pytest.mark.parametrize("name", ["plain", "talks"])
def test_a_target_that_answers_is_never_cut_short(name: str) -> None:
    """Without a silence no case has less than its timeout, and nothing is noted."""
    verdict, _ = judged(f"behaving.py:{name}", cases=30)
    assert (30, ()) == (verdict.passed, verdict.notes)


def test_the_time_out_is_that_of_a_call() -> None:
    """Binding and a case are many calls of a tenth of it. Kills the limit for all of them."""
    with isolated(f"{SUBJECTS}/behaving.py:rests", timeout=TIMEOUT) as candidate:
        candidate.ready()
        assert candidate._setup.probe  # no trial was cut short
        options = Options(cases=1, diagnose=False, shrink=False)
        verdict = check(candidate, options)
    assert (0, 1) == (verdict.failed, verdict.run)
