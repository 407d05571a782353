"""What a long run keeps of its cases: one object for what is equal, and all that a verdict says."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mha_parity.core.options import Options
from mha_parity.judging.systematic_error import SystematicErrorTest
from mha_parity.run import kept_cases
from mha_parity.run.asked_cases import cases_for, settings_of
from mha_parity.run.case_run import run_cases
from mha_parity.run.check import RunResult, run_all, verdict_of
from mha_parity.run.chunks import WHOLE, Shard
from mha_parity.run.kept_cases import RetainedResults
from mha_parity.run.repro import Repro
from mha_parity.worker.open_target import opened
from subject_checks import SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.verdict import Verdict
    from mha_parity.run.case_run import CaseResult

CASES = 48


@pytest.fixture
def judged_cases() -> Callable[..., list[CaseResult]]:
    """Return a function that judges a subject in the cases of one seed, without their arrays."""

    def results(name: str, seed: int = 5, **options: object) -> list[CaseResult]:
        asked = Options(cases=CASES, seed=seed, in_process=True, **options)  # type: ignore[arg-type]  # of any option
        with opened(f"{SUBJECTS}/{name}", asked) as candidate:
            cases = list(cases_for(candidate, candidate.offer, asked))
            found = run_cases(candidate, cases, settings_of(asked, candidate))
            return [each.without_arrays() for each in found]

    return results


def test_equal_values_of_two_cases_are_one_object(
    judged_cases: Callable[..., list[CaseResult]],
) -> None:
    """What two results bring from another process is held once, and nothing of it changes."""
    first = judged_cases("projected.py:f", features=(("regime", "normal"),))[0]
    copies = [pickle.loads(pickle.dumps(first)) for _ in range(3)]  # noqa: S301  (its own)
    results = RetainedResults(drawn=False)
    results.add(copies[:2])
    one, other = results.case_results
    for field in ("parameters", "held", "exposes", "answer_dtype"):
        assert getattr(one, field) is getattr(other, field)
        assert getattr(one, field) == getattr(copies[1], field)
    assert one.check_results[0].where is other.check_results[0].where
    assert other.check_results == copies[1].check_results
    assert one.parameters
    assert one.check_results[0].where
    of_another_run = RetainedResults(drawn=False)
    of_another_run.add(copies[2:])
    assert of_another_run.case_results[0].parameters is not one.parameters


@pytest.mark.parametrize(
    "name", ["projected.py:f", "wrong_scale.py:f", "float32_inside.py:cast_back"]
)
def test_a_verdict_on_what_is_kept_is_that_on_everything(
    name: str, judged_cases: Callable[..., list[CaseResult]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts, rows of checks, worst error, accuracy and notes do not depend on what is left out."""
    everything = judged_cases(name)
    monkeypatch.setattr(kept_cases, "ALL_OF", 0)
    results = RetainedResults(drawn=False)
    results.add(everything)
    left_out = sum(
        len(one.check_results) - len(other.check_results)
        for one, other in zip(everything, results.case_results, strict=True)
    )
    assert left_out > 0

    def verdict(case_results: list[CaseResult]) -> Verdict:
        options = Options(cases=CASES, seed=5, in_process=True, shrink=False, diagnose=False)
        target = f"{SUBJECTS}/{name}"
        found = RunResult(case_results, SystematicErrorTest(), [], {}, 0.0)
        with opened(target, options) as candidate:
            judged = verdict_of(candidate, options, target, Repro(target, options), found)
        rows = tuple(sorted(judged.checks, key=lambda row: row.name))
        return replace(judged, seconds=0.0, checks=rows)

    less, more = (vars(verdict(found)) for found in (results.case_results, everything))
    assert [] == [name for name in more if repr(less[name]) != repr(more[name])]


def test_a_page_is_given_the_error_of_every_case(
    judged_cases: Callable[..., list[CaseResult]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a page draws, the error of each case against its size, is kept where one is drawn."""
    monkeypatch.setattr(kept_cases, "ALL_OF", 0)
    everything = judged_cases("projected.py:f")
    results = RetainedResults(drawn=True)
    results.add(everything)
    assert [each.check_results for each in results.case_results] == [
        each.check_results for each in everything
    ]


def test_a_shard_keeps_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of merged shards draws the error of each case too, so that a shard keeps them all."""
    monkeypatch.setattr(kept_cases, "ALL_OF", 0)
    options = Options(cases=CASES, seed=5, in_process=True, diagnose=False)
    with opened(f"{SUBJECTS}/projected.py:f", options) as candidate:
        whole, part = (
            run_all(candidate, options, None, None, shard)[0].case_results
            for shard in (WHOLE, Shard(1, 2))
        )
    assert [each.case for each in part] == [each.case for each in whole[::2]]
    for one, other in zip(part, whole[::2], strict=True):
        left_out = {*other.held} - {*one.held}
        with_error = {each.check for each in one.check_results}
        assert left_out
        assert left_out <= with_error


def test_the_arrays_of_few_failures_are_kept(
    judged_cases: Callable[..., list[CaseResult]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where enough failures have their arrays, those of the next chunk lose theirs."""
    monkeypatch.setattr(kept_cases, "KEPT_FAILURES", 2)
    failing = [each for each in judged_cases("wrong_scale.py:f") if each.fails]
    chunk = [replace(each, answer=object()) for each in failing[:3]]  # type: ignore[arg-type]  # any will do
    chunk = [replace(each, problem=object()) for each in chunk]  # type: ignore[arg-type]  # any will do
    results = RetainedResults(drawn=False)
    results.add(chunk)
    results.add(chunk)
    assert [each.problem is not None for each in results.case_results] == [True] * 3 + [False] * 3


def test_the_largest_error_is_kept_with_its_place(
    judged_cases: Callable[..., list[CaseResult]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of matches, in units of what is allowed, each that is larger than all before stays whole."""
    monkeypatch.setattr(kept_cases, "ALL_OF", 0)
    first = judged_cases("projected.py:f", features=(("regime", "normal"),))[0]
    match = replace(first.check_results[0], times_torch=None, detail="", allowed=2.0)
    results = RetainedResults(drawn=False)
    for error in (1.0, 0.5, 1.5, 1.5):
        results.add(
            [replace(first, check_results=(replace(match, error=error),), held=("conduct",))]
        )
    assert [
        [1.0], [], [1.5], [],
    ] == [[e.error for e in each.check_results] for each in results.case_results]  # fmt: skip
    assert results.case_results[1].held == (match.check, "conduct")
