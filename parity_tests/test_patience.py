"""A target that hangs costs a few timeouts: in every case, in some, and while it is shrunk."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mha_parity.candidate import NOT_ASKED, NOT_AWAITED
from mha_parity.isolation import isolated
from mha_parity.options import Options
from mha_parity.patience import AFTER_ALL, IN_A_RUN, NEVER, Patience
from mha_parity.run import check
from mha_parity.verdict import Outcome, Verdict

SUBJECTS = Path(__file__).parent / "subjects"
TIMEOUT = 2.0


def exhausted(patience: Patience) -> list[float]:
    """Lose until it is over, and return the limits on the way."""
    limits = []
    while not patience.over:
        limits.append(patience.limit)
        patience.lost()
    return limits


class TestPatience:
    """The limit, and the end, follow from times that were measured."""

    def test_the_first_silence_is_waited_for_in_full(self) -> None:
        """However quick the target was, a case has its timeout until one was waited for in vain."""
        patience = Patience(10.0)
        patience.started(0.5)
        patience.heard(0.25)
        assert 10.0 == patience.limit
        patience.lost()
        assert 0.75 == patience.limit

    def test_the_slowest_answer_counts(self) -> None:
        """The limit grows with the slowest answer and the last start, up to the timeout."""
        patience = Patience(10.0)
        patience.lost()
        for seconds in (0.5, 3.0, 0.25):
            patience.heard(seconds)
        patience.started(1.0)
        assert 4.0 == patience.limit
        patience.heard(9.5)
        assert 10.0 == patience.limit

    def test_of_a_target_that_never_answered_nothing_is_known(self) -> None:
        """Its silence is waited for in full, and it is given up after the second."""
        patience = Patience(10.0)
        patience.started(0.5)
        assert [10.0] * NEVER == exhausted(patience)
        assert not patience.answered

    def test_one_answer_keeps_it_going(self) -> None:
        """After an answer only the time that passes in vain counts, new processes included."""
        patience = Patience(10.0)
        patience.heard(0.25)
        patience.started(0.25)
        first, *others = exhausted(patience)
        assert 10.0 == first
        assert {0.5} == set(others)
        spent = sum(limit + 0.25 for limit in (first, *others))
        assert IN_A_RUN * 10.0 <= spent < IN_A_RUN * 10.0 + 0.75

    def test_shrinking_has_its_own_time(self) -> None:
        """It is brief at once and ends after two timeouts' time, but for one wait in full."""
        patience = Patience(10.0)
        patience.heard(0.25)
        patience.started(0.25)
        exhausted(patience)
        patience.renew(brief=True)
        briefly = exhausted(patience)
        assert {0.5} == set(briefly)
        assert -(-AFTER_ALL * 10.0 // 0.75) == len(briefly)
        patience.renew(brief=True)
        assert patience.over
        patience.renew(brief=False)
        assert [10.0] == exhausted(patience)


def judged(name: str, cases: int = 60, timeout: float = TIMEOUT) -> tuple[Verdict, float]:
    """Return the verdict on a subject in a process of its own, and how long it took."""
    target = f"{SUBJECTS}/{name}"
    started = time.monotonic()
    with isolated(target, timeout=timeout) as candidate:
        options = Options(cases=cases, dtypes=("float64",), diagnose=False)
        verdict = check(candidate, options, target=target)
    return verdict, time.monotonic() - started


def test_a_target_that_always_hangs_costs_three_timeouts() -> None:
    """One to see what it offers and one for each of two cases; no smaller case is looked for."""
    verdict, seconds = judged("misbehaving.py:hangs")
    assert Outcome.FAIL is verdict.outcome
    assert (NEVER, 60 - NEVER) == (verdict.failed, verdict.inconclusive)
    (failure,) = verdict.failures
    assert "timeout" == failure.judgement.severity.value
    assert failure.case == failure.first_seen
    (row,) = [row for row in verdict.checks if row.name == "answers"]
    assert NEVER * TIMEOUT == row.seconds
    (note,) = verdict.notes
    assert f"58 cases were {NOT_ASKED}" in note
    assert "it never answered" in note
    assert 3 * TIMEOUT <= seconds < 8 * TIMEOUT  # the rest is starts, and what judging takes


def test_a_target_that_hangs_now_and_then_is_judged_by_the_other_cases() -> None:
    """One case fails after its whole timeout, like cases are not judged, all others are.

    The timeout is long beside what a new process takes on a busy machine: else too much time would
    have passed in vain for asking on.
    """
    timeout = 4 * TIMEOUT
    verdict, seconds = judged("misbehaving.py:hangs_now_and_then", cases=70, timeout=timeout)
    (failure,) = verdict.failures
    assert (1, "timeout") == (verdict.failed, failure.judgement.severity.value)
    assert f"within {timeout:g} seconds" in failure.judgement.detail
    assert "qkv-N1-L65-S65-H1-D1-unbatched-float64-s0" == failure.case.id
    (note,) = verdict.notes
    assert f"{verdict.inconclusive} cases were {NOT_AWAITED}" in note
    assert 1 < verdict.inconclusive < 20
    assert verdict.passed == 70 - 1 - verdict.inconclusive
    assert seconds < 70 * timeout / 5


@pytest.mark.parametrize("name", ["plain", "talks"])
def test_a_target_that_answers_is_never_cut_short(name: str) -> None:
    """Without a silence no case has less than its timeout, and nothing is noted."""
    verdict, _ = judged(f"behaving.py:{name}", cases=30)
    assert (30, ()) == (verdict.passed, verdict.notes)
