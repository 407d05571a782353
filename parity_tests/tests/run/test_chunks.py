"""Parts of a run: the same verdict in one process and in several, and one sentence where not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.catalogue.base import Attention, attend
from mha_parity.catalogue.registry import whole_offer
from mha_parity.core.candidate import FunctionCandidate
from mha_parity.core.options import Options
from mha_parity.judging.systematic_error import SystematicErrorTest
from mha_parity.run import summary
from mha_parity.run.build_verdict import settings_of
from mha_parity.run.case_run import ALL_OF, THEN_EVERY
from mha_parity.run.check import check
from mha_parity.run.chunks import CHUNK_SIZE, KEPT_FAILURES, run_chunk
from mha_parity.run.executors import PARALLEL_FROM, jobs
from mha_parity.worker.open_target import opened

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.core.verdict import Verdict

SUBJECTS = Path(__file__).parents[2] / "subjects"


def _quiet() -> None:
    """Hear nothing."""


def _verdict(target: str, jobs: int, heard: list[tuple[int, int]]) -> Verdict:
    options = Options(cases=CHUNK_SIZE + 7, seed=5, jobs=jobs, shrink=False, diagnose=False)
    with opened(target, options) as candidate:
        return check(candidate, options, target=target, progress=lambda *now: heard.append(now))


@pytest.mark.parametrize("name", ["projected.py:f", "wrong_scale.py:f"])
def test_the_verdict_does_not_depend_on_the_number_of_processes(name: str) -> None:
    """Right and wrong targets get the same counts, checks and failures from one and from two.

    From two, progress hears of each chunk when it is done, and last that all cases are.
    """
    heard: list[tuple[int, int]] = []
    one = _verdict(f"{SUBJECTS}/{name}", 1, [])
    two = _verdict(f"{SUBJECTS}/{name}", 2, heard)
    whole = CHUNK_SIZE + 7
    assert [(CHUNK_SIZE, whole), (whole, whole)] == heard
    same = ("outcome", "run", "passed", "failed", "features", "checks", "power", "weighed", "worst")
    for field in (*same, "environment"):
        assert getattr(one, field) == getattr(two, field), field
    assert [each.check_result for each in one.failures] == [
        each.check_result for each in two.failures
    ]


def test_long_runs_take_every_core_and_short_ones_one_process() -> None:
    """Processes are started where they are worth it, and never for a candidate of this process."""
    assert jobs(Options(cases=PARALLEL_FROM - 1), "a.py:f") == 1
    assert jobs(Options(cases=PARALLEL_FROM), "a.py:f") >= 1
    assert jobs(Options(cases=PARALLEL_FROM), None) == 1
    assert jobs(Options(cases=PARALLEL_FROM, in_process=True), "a.py:f") == 1
    assert jobs(Options(jobs=3), "a.py:f") == 3


def test_a_candidate_of_this_process_cannot_be_asked_in_several() -> None:
    """Asking for several processes with a candidate that has one is refused in one sentence."""
    with pytest.raises(ValueError, match="got jobs=2, but a candidate in this process has one"):
        jobs(Options(jobs=2, in_process=True), "a.py:f")


def _zeros(problem: Problem) -> Array:
    right = attend(Attention, problem).output
    return np.zeros_like(right)


def test_a_part_keeps_the_arrays_of_few_failures() -> None:
    """Of a target that fails everywhere only so many trials keep their arrays."""
    from mha_parity.cases.covering import draw_cases

    offer = whole_offer() | {"size": ("small",), "dtype": ("float64",)}
    cases = draw_cases(offer, KEPT_FAILURES + 30, seed=3)
    heard: list[None] = []
    part = run_chunk(
        FunctionCandidate("zeros", _zeros, offer),
        cases,
        settings_of(Options()),
        lambda: heard.append(None),
    )
    assert len(heard) == len(part.case_results) == len(cases)
    assert sum(case_result.fails for case_result in part.case_results) > KEPT_FAILURES
    assert (
        sum(case_result.problem is not None for case_result in part.case_results) == KEPT_FAILURES
    )


def test_sums_of_parts_are_the_sums_of_the_whole() -> None:
    """What parts gather about systematic errors, merged in order, is what one gathers over all."""
    from mha_parity.cases.covering import draw_cases

    def biased(problem: Problem) -> Array:
        right = attend(Attention, problem).output
        return np.asarray(right * right.dtype.type(1 + 2.0**-18))

    offer = whole_offer() | {"size": ("small",), "dtype": ("float32",), "regime": ("normal",)}
    cases = draw_cases(offer, 120, seed=4)
    candidate = FunctionCandidate("biased", biased, offer)
    settings = settings_of(Options())
    halves = [run_chunk(candidate, some, settings, _quiet) for some in (cases[:60], cases[60:])]
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
    candidate = FunctionCandidate("right", lambda p: attend(Attention, p), offer)
    early, late = (
        run_chunk(candidate, cases, settings_of(Options()), _quiet, first).case_results
        for first in (0, ALL_OF)
    )
    assert summary.weighed(early) == len(cases)
    assert summary.weighed(late) == len(cases) // THEN_EVERY
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
        right = attend(Attention, problem).output
        return np.asarray(right * right.dtype.type(1.01))

    candidate, settings = FunctionCandidate("biased", biased, offer), settings_of(Options())
    early, late = (
        run_chunk(candidate, cases, settings, _quiet, first).systematic.findings()[0].cases
        for first in (0, ALL_OF)
    )
    assert late <= len(cases) // THEN_EVERY < early
