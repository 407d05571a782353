"""Parts of a run: the same verdict in one process and in several, and one sentence where not."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mha_parity.cases.covering import draw_cases
from mha_parity.catalogue.plain_attention import Attention, answer_of
from mha_parity.catalogue.registry import whole_offer
from mha_parity.core.candidate import FunctionCandidate
from mha_parity.core.options import Options
from mha_parity.core.target_facts import NO_FACTS, TargetFacts
from mha_parity.judging.output import DEFAULT_SETTINGS
from mha_parity.judging.systematic_error import SystematicErrorTest
from mha_parity.run import chunks, summary
from mha_parity.run.case_run import ALL_OF, THEN_EVERY
from mha_parity.run.check import check
from mha_parity.run.chunks import run_chunk
from mha_parity.run.executors import COMPILED_FROM, PARALLEL_FROM, process_count, processes
from mha_parity.worker.open_target import opened
from subject_checks import SAME, SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.core.verdict import Verdict


SIZE = 24  # cases of a chunk here


def _quiet(_: object) -> None:
    """Ignore the progress."""


@pytest.fixture(scope="module")
def two_processes() -> Iterator[Executor]:
    """Return two processes, which import torch once for the runs here."""
    with processes(2) as executor:
        yield executor


@pytest.fixture
def verdict_by(
    monkeypatch: pytest.MonkeyPatch, two_processes: Executor
) -> Callable[..., tuple[Verdict, list[tuple[int, int]]]]:
    """Return a function that judges a subject by some processes, in chunks of 24 cases.

    It returns the calls of progress as well.
    """
    monkeypatch.setattr("mha_parity.run.chunks.CHUNK_SIZE", SIZE)
    monkeypatch.setattr("mha_parity.run.check.processes", lambda _: nullcontext(two_processes))

    def verdict(name: str, jobs: int, **asked: Any) -> tuple[Verdict, list[tuple[int, int]]]:
        heard: list[tuple[int, int]] = []
        target = f"{SUBJECTS}/{name}"
        quick = {"cases": SIZE + 7, "seed": 5, "shrink": False, "diagnose": False}
        options = Options(jobs=jobs, **quick | asked)
        with opened(target, options) as candidate:
            found = check(candidate, options, target=target, progress=lambda *n: heard.append(n))
        return found, heard

    return verdict


@pytest.mark.parametrize("name", ["projected.py:f", "wrong_scale.py:f"])
def test_the_verdict_does_not_depend_on_the_number_of_processes(
    name: str, verdict_by: Callable[..., tuple[Verdict, list[tuple[int, int]]]]
) -> None:
    """Right and wrong targets get the same counts, checks and failures from one and from two.

    From two, progress is called for each chunk when it is done, and last for all cases.
    """
    one, _ = verdict_by(name, 1)
    two, heard = verdict_by(name, 2)
    whole = SIZE + 7
    assert [(SIZE, whole), (whole, whole)] == heard
    for field in (*SAME, "environment"):
        assert getattr(one, field) == getattr(two, field), field
    assert [each.check_result for each in one.failures] == [
        each.check_result for each in two.failures
    ]


@pytest.mark.parametrize(
    "asked",
    [{"fail_fast": True}, {"max_failures": 4}, {"max_failures": 12, "cases": 3 * SIZE}],
    ids=repr,
)
def test_where_a_run_ends_does_not_depend_on_the_number_of_processes(
    asked: dict[str, int], verdict_by: Callable[..., tuple[Verdict, list[tuple[int, int]]]]
) -> None:
    """One and two processes end at the same case with the same sentence, within a chunk or not."""
    one, two = (verdict_by("wrong_scale.py:f", n, **asked)[0] for n in (1, 2))
    assert one.stopped_early
    assert one.failed == asked.get("max_failures", 1)
    assert one.sentence == two.sentence
    assert one.failures == two.failures


def test_long_runs_take_every_core_and_short_ones_one_process() -> None:
    """Processes are started where they are worth it, and never for a candidate of this process."""
    assert 1 == process_count(Options(cases=PARALLEL_FROM - 1), "a.py:f")
    assert process_count(Options(cases=PARALLEL_FROM), "a.py:f") >= 1
    assert 1 == process_count(Options(cases=PARALLEL_FROM), None)
    assert 1 == process_count(Options(cases=PARALLEL_FROM, in_process=True), "a.py:f")
    assert 3 == process_count(Options(jobs=3), "a.py:f")
    assert process_count(Options(cases=PARALLEL_FROM), "a.py:f") == process_count(
        Options(cases=COMPILED_FROM), "a.py:f", compiles=True
    )
    assert 1 == process_count(Options(cases=COMPILED_FROM - 1), "a.py:f", compiles=True)


def test_a_candidate_of_this_process_cannot_be_asked_in_several() -> None:
    """Asking for several processes with a candidate that has one is refused in one sentence."""
    with pytest.raises(ValueError, match="got jobs=2, but a candidate in this process has one"):
        process_count(Options(jobs=2, in_process=True), "a.py:f")


def _zeros(problem: Problem) -> Array:
    right = answer_of(Attention, problem).output
    return np.zeros_like(right)


def test_each_failure_is_reported_as_it_comes() -> None:
    """A fresh process is loaded at the first one. Kills a failure that is reported at no time."""
    offer = whole_offer() | {"size": ("small",), "dtype": ("float64",)}
    candidate = FunctionCandidate("zeros", _zeros, offer)
    failures: list[None] = []
    found = chunks.run_chunks(
        candidate, draw_cases(offer, 12, 3), DEFAULT_SETTINGS, _quiet,
        on_failure=lambda: failures.append(None),
    )  # fmt: skip
    assert sum(each.fails for chunk in found for each in chunk.case_results) == len(failures) > 0


def test_a_part_keeps_the_arrays_of_few_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a target that fails everywhere only `KEPT_FAILURES` trials keep their arrays."""
    monkeypatch.setattr(chunks, "KEPT_FAILURES", 4)
    offer = whole_offer() | {"size": ("small",), "dtype": ("float64",)}
    cases = draw_cases(offer, 12, seed=3)
    heard: list[None] = []
    part = run_chunk(
        FunctionCandidate("zeros", _zeros, offer),
        cases,
        DEFAULT_SETTINGS,
        lambda _: heard.append(None),
    )
    assert len(heard) == len(part.case_results) == len(cases)
    assert sum(case_result.fails for case_result in part.case_results) > 4
    assert 4 == sum(case_result.problem is not None for case_result in part.case_results)


def test_sums_of_parts_are_the_sums_of_the_whole() -> None:
    """What parts gather about systematic errors, merged in order, is what one gathers over all."""
    from mha_parity.cases.covering import draw_cases

    def biased(problem: Problem) -> Array:
        right = answer_of(Attention, problem).output
        return np.asarray(right * right.dtype.type(1 + 2.0**-15))

    offer = whole_offer() | {"size": ("small",), "dtype": ("float32",), "regime": ("normal",)}
    cases = draw_cases(offer, 40, seed=4)
    candidate = FunctionCandidate("biased", biased, offer)
    settings = DEFAULT_SETTINGS
    halves = [run_chunk(candidate, some, settings, _quiet) for some in (cases[:20], cases[20:])]
    merged = SystematicErrorTest()
    for part in halves:
        merged.merge(part.systematic)
    whole = run_chunk(candidate, cases, settings, _quiet).systematic
    assert [each.sentence for each in whole.findings()] != []
    assert [each.sentence for each in merged.findings()] == [
        each.sentence for each in whole.findings()
    ]


def test_a_long_run_is_measured_on_every_fifth_case_behind_the_first() -> None:
    """Power and accuracy are taken of all early cases, and of one late case in five."""
    from mha_parity.cases.covering import draw_cases

    offer = whole_offer() | {"size": ("small",), "regime": ("normal",)}
    cases = draw_cases(offer, 10 * THEN_EVERY, seed=6)
    candidate = FunctionCandidate("right", lambda p: answer_of(Attention, p), offer)
    early, late = (
        run_chunk(candidate, cases, DEFAULT_SETTINGS, _quiet, first).case_results
        for first in (0, ALL_OF)
    )
    assert summary.measured_cases(early) == len(cases)
    assert summary.measured_cases(late) == len(cases) // THEN_EVERY
    assert sum(bool(t.measured) for t in early) > sum(bool(t.measured) for t in late) > 0
    assert [t.check_results[0].severity for t in early] == [
        t.check_results[0].severity for t in late
    ]


def test_a_long_run_adds_every_fifth_case_to_its_sums() -> None:
    """Behind the first 2000 cases of a run the sums over it take in one case of five."""
    from mha_parity.cases.covering import draw_cases

    offer = whole_offer() | {"size": ("small",), "dtype": ("float32",), "regime": ("normal",)}
    cases = draw_cases(offer, 40, seed=6)

    def biased(problem: Problem) -> Array:
        right = answer_of(Attention, problem).output
        return np.asarray(right * right.dtype.type(1.01))

    candidate, settings = (
        FunctionCandidate("biased", biased, offer),
        DEFAULT_SETTINGS,
    )
    early, late = (
        run_chunk(candidate, cases, settings, _quiet, first).systematic.findings()[0].cases
        for first in (0, ALL_OF)
    )
    assert late <= len(cases) // THEN_EVERY < early


@pytest.mark.parametrize("compiles", [False, True])
def test_what_compiles_takes_more_processes(
    monkeypatch: pytest.MonkeyPatch, *, compiles: bool
) -> None:
    """A candidate that says so is counted as one that does, and one that says nothing is not.

    Kills the default of what a candidate says of itself.
    """
    asked: list[bool] = []

    def counted(_: Options, __: str | None, *, compiles: bool = False, handed: bool = False) -> int:
        assert not handed
        asked.append(compiles)
        return 1

    monkeypatch.setattr("mha_parity.run.check.process_count", counted)
    facts = TargetFacts(compiles=True) if compiles else NO_FACTS
    candidate = FunctionCandidate(
        "right", lambda p: answer_of(Attention, p), whole_offer(), facts=facts
    )
    check(candidate, Options(cases=2, diagnose=False, shrink=False))
    assert [False, compiles] == asked


@pytest.mark.parametrize("draw", [False, True])
def test_what_is_drawn_is_judged_with_every_order(
    monkeypatch: pytest.MonkeyPatch, *, draw: bool
) -> None:
    """A page shows what each case is allowed, and elsewhere the failures shown are judged again.

    Kills the page that is left out of the condition.
    """
    asked: list[bool] = []
    run = chunks.run_chunks

    def noted(candidate: Any, cases: Any, settings: Any, *more: Any, **named: Any) -> Any:
        asked.append(settings.brief)
        return run(candidate, cases, settings, *more, **named)

    monkeypatch.setattr("mha_parity.run.check.run_chunks", noted)
    candidate = FunctionCandidate("right", lambda p: answer_of(Attention, p), whole_offer())
    check(candidate, Options(cases=2, diagnose=False, shrink=False, draw=draw))
    assert [not draw] == asked
