"""``--fail-fast`` ends a run at the first case that fails, ``--max-failures`` at the nth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mha_parity.cases.case_order import asked_cases
from mha_parity.cases.covering import draw_cases
from mha_parity.catalogue.plain_attention import Attention, answer_of
from mha_parity.catalogue.registry import whole_offer
from mha_parity.core.arrays import Array
from mha_parity.core.candidate import CandidateError, FunctionCandidate
from mha_parity.core.options import Options
from mha_parity.core.problem import Problem
from mha_parity.core.verdict import Outcome, Verdict
from mha_parity.report.json_document import verdict_document
from mha_parity.report.wording import judged_counts
from mha_parity.run.asked_cases import cases_for
from mha_parity.run.check import check
from mha_parity.run.chunks import KEPT_FAILURES
from mha_parity.run.summary import ENDED

QUICK = {"shrink": False, "diagnose": False, "fail_fast": True}
ALL = {"fail_fast": False, "max_failures": 0}


def wrong_from_two_samples(problem: Problem) -> Array:
    """Return zeros for more than one sample, else the right answer."""
    output = answer_of(Attention, problem).output
    return np.zeros_like(output) if problem.case.batch > 1 else output


def right(problem: Problem) -> Array:
    """Return the right answer."""
    return answer_of(Attention, problem).output


def crashes(problem: Problem) -> Array:
    """Raise for every problem."""
    raise CandidateError("crash", f"raised ValueError: {problem.case.batch} samples")


def crashes_for_one_sample(problem: Problem) -> Array:
    """Raise for one sample, else return the right answer."""
    return crashes(problem) if problem.case.batch == 1 else right(problem)


def judged(function: object, cases: int, **asked: int) -> Verdict:
    """Judge a function of problems, up to its first failure if nothing else is asked."""
    plain = whole_offer() | {"weights": ("none",), "size": ("small",), "dtype": ("float64",)}
    candidate = FunctionCandidate("f", function, plain)
    return check(candidate, Options(cases=cases, **QUICK | asked))  # type: ignore[arg-type]  # options vary


def test_a_run_ends_at_the_first_failure() -> None:
    """One case fails, the last that was asked; the sentence and the document say so."""
    verdict = judged(wrong_from_two_samples, 40)
    stopped = f"fails 1 of the first {verdict.run} cases."

    assert (Outcome.FAIL, 1, 1) == (verdict.outcome, verdict.outcome.exit_status, verdict.failed)
    assert verdict.run < 40
    assert stopped in verdict.sentence
    assert f"{verdict.run} of 40 cases (ended at 1 failure) · " in judged_counts(verdict)
    assert verdict_document(verdict)["cases"]["stopped_early"] is True


def zeros(problem: Problem) -> Array:
    """Return zeros for every problem."""
    return np.zeros_like(right(problem))


def test_a_run_ends_at_as_many_failures_as_a_diagnosis_reads() -> None:
    """By default the arrays of all failing cases are kept; ``max_failures=0`` asks every case."""
    usual, whole = (judged(zeros, 60, **each) for each in ({"fail_fast": False}, ALL))
    assert KEPT_FAILURES == Options().max_failures == usual.failed
    assert (True, 60) == (usual.stopped_early, usual.drawn)
    assert KEPT_FAILURES < usual.run < 60, "a few cases have zeros for an answer"
    assert f"fails 40 of the first {usual.run} cases." in usual.sentence
    assert f"{usual.run} of 60 cases (ended at 40 failures; --max-failures 0" in judged_counts(
        usual
    )
    assert (False, 60) == (whole.stopped_early, whole.run)
    assert judged_counts(whole).startswith("60 cases · ")


def test_features_behind_the_end_are_not_drawn() -> None:
    """They are no features that no case could judge: the run ended before."""
    ended = judged(zeros, 60, max_failures=5, fail_fast=False)
    rows = {(row.axis, row.value): row for row in ended.features}
    behind = [row for row in ended.features if row.status == "not drawn"]
    assert behind
    assert {ENDED} == {row.reason for row in behind}
    assert "fail" == rows["dtype", "float64"].status
    assert not any(row.status == "inconclusive" for row in ended.features)


def test_the_last_failure_may_be_the_last_case() -> None:
    """Where all cases are asked the run did not end early, whatever failed last."""
    first = judged(zeros, 12, max_failures=1, fail_fast=False)
    whole = judged(zeros, first.run, **ALL)
    exact = judged(zeros, first.run, max_failures=whole.failed, fail_fast=False)
    assert not exact.stopped_early
    assert whole.sentence == exact.sentence


def test_a_target_that_raises_first_is_asked_until_it_answers() -> None:
    """A crash of the first cases is a failure, not a target that could not be called."""
    verdict = judged(crashes_for_one_sample, 40)

    assert Outcome.FAIL is verdict.outcome
    assert verdict.stopped_early
    assert verdict.failed == verdict.run - 1, "only the last was answered, and rightly"


def test_a_target_that_always_raises_could_not_be_called() -> None:
    """Where no case is answered, all are asked, and there is no verdict."""
    with pytest.raises(ValueError, match="none of 12 cases was answered"):
        judged(crashes, 12)


def test_the_first_failure_is_looked_for_where_it_is_likely() -> None:
    """Of a run that ends at the first failure the cases come in the order of asking."""
    run = Options(cases=100, seed=4)
    candidate = FunctionCandidate("f", right, whole_offer())
    usual = list(cases_for(candidate, candidate.offer, run))
    early = list(cases_for(candidate, candidate.offer, replace(run, fail_fast=True)))

    assert list(asked_cases(candidate.offer, 100, 4)) == early
    assert draw_cases(candidate.offer, 100, 4) == usual


def test_a_right_attention_is_asked_all() -> None:
    """Without a failure all cases are run, and the sentence says nothing of stopping."""
    verdict = judged(right, 30)

    assert 30 == verdict.run
    assert not verdict.stopped_early
    assert "stopped" not in verdict.sentence
