"""``--fail-fast`` ends a run at the first case that fails, however many processes judge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mha_parity.cases.asking_order import asked_cases
from mha_parity.cases.covering import draw_cases
from mha_parity.catalogue.base import Attention, answer_of
from mha_parity.catalogue.registry import whole_offer
from mha_parity.core.arrays import Array
from mha_parity.core.candidate import CandidateError, FunctionCandidate
from mha_parity.core.options import Options
from mha_parity.core.problem import Problem
from mha_parity.core.verdict import Outcome, Verdict
from mha_parity.report.json_document import verdict_document
from mha_parity.run.check import check
from mha_parity.run.narrowing import cases_for

QUICK = {"shrink": False, "diagnose": False, "fail_fast": True}


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


def judged(function: object, cases: int) -> Verdict:
    """Judge a function of problems up to its first failure."""
    plain = whole_offer() | {"weights": ("none",), "size": ("small",), "dtype": ("float64",)}
    candidate = FunctionCandidate("f", function, plain)
    return check(candidate, Options(cases=cases, **QUICK))  # type: ignore[arg-type]  # options vary


def test_a_run_ends_at_the_first_failure() -> None:
    """One case fails, the last that was asked; the sentence and the document say so."""
    verdict = judged(wrong_from_two_samples, 40)
    stopped = f"stopped at the first failure after {verdict.run} case"

    assert (Outcome.FAIL, 1, 1) == (verdict.outcome, verdict.outcome.exit_status, verdict.failed)
    assert verdict.run < 40
    assert stopped in verdict.sentence
    assert verdict_document(verdict)["cases"]["stopped_early"] is True


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
