"""Run the cases in chunks: one after another in this process, or in several processes.

Cases are independent of each other, and the chunks are the same however many processes there are:
the verdict does not depend on their number.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from mha_parity.core.environment import environment
from mha_parity.judging.systematic_error import SystematicErrorTest
from mha_parity.run.case_run import is_measured, run_cases
from mha_parity.run.fresh import is_sampled
from mha_parity.worker.open_target import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mha_parity.core.candidate import Candidate
    from mha_parity.core.case import Case
    from mha_parity.core.options import Options
    from mha_parity.judging.output import JudgeSettings
    from mha_parity.run.case_run import CaseResult

CHUNK_SIZE = 96  # cases in a chunk: a multiple of `case_run.IN_FLIGHT`
KEPT_FAILURES = 40  # failing cases of a chunk whose arrays are kept for the diagnosis
# From this number of cases on, several processes save more than the imports of torch cost.
PARALLEL_FROM = 2000


@dataclass(frozen=True)
class Shard:
    """Every ``of``-th case of a run, from the case ``number`` on, counted from 1."""

    number: int = 1
    of: int = 1

    def size(self, total: int) -> int:
        """Return how many of ``total`` cases the shard has."""
        return len(range(self.number - 1, total, self.of))

    def __str__(self) -> str:
        """Return it as --shard takes it."""
        return f"{self.number}/{self.of}"


WHOLE = Shard()


@dataclass(eq=False)
class ChunkResult:
    """The results of the cases of one chunk, and the sums over them."""

    case_results: list[CaseResult]
    systematic: SystematicErrorTest
    environment: dict[str, str] | None = None  # of the process that ran the first cases


def run_chunk(
    candidate: Candidate,
    cases: Sequence[Case],
    settings: JudgeSettings,
    tick: Callable[[], None],
    first: int = 0,
    step: int = 1,
    *,
    fail_fast: bool = False,
) -> ChunkResult:
    """Run cases on an open candidate, all or up to the first failure; ``tick`` follows each.

    ``first`` is the place of the first of them in the run, ``step`` the distance to the next.
    """
    chunk = ChunkResult([], SystematicErrorTest())
    kept = 0
    for number, case_result in enumerate(run_cases(candidate, cases, settings, first, step)):
        place = first + step * number
        if (
            is_measured(place)
            and case_result.problem
            and case_result.reference
            and case_result.answer
        ):
            chunk.systematic.add(case_result.problem, case_result.reference, case_result.answer)
        keep = case_result.fails and kept < KEPT_FAILURES
        kept += keep
        without_arrays = case_result.without_arrays(with_answer=is_sampled(place // step))
        chunk.case_results.append(case_result if keep else without_arrays)
        tick()
        if fail_fast and case_result.fails:
            break
    return chunk


def jobs(options: Options, target: str | None) -> int:
    """Return in how many processes to judge: what was asked for, else a core each in long runs.

    Raises
    ------
    ValueError
        Several were asked for, but the candidate cannot be opened again elsewhere.

    """
    movable = target is not None and not options.in_process and options.answers is None
    if options.jobs is None:
        return _cores() if movable and options.cases >= PARALLEL_FROM else 1
    if options.jobs > 1 and not movable:
        raise ValueError(
            f"got jobs={options.jobs}, but a candidate in this process has one, and so have "
            "recorded answers; leave jobs out, or name a target that can be opened in several."
        )
    return options.jobs


def _cores() -> int:
    """Return how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def run_chunks(
    candidate: Candidate,
    cases: Iterable[Case],
    settings: JudgeSettings,
    tick: Callable[[int], None],
    shard: Shard = WHOLE,
    *,
    fail_fast: bool = False,
) -> Iterator[ChunkResult]:
    """Yield the chunks of a run in this process; ``tick`` gets the number of cases done."""
    done = 0

    def one_more() -> None:
        nonlocal done
        done += 1
        tick(done)

    for first, some in _split(cases, shard):
        yield run_chunk(candidate, some, settings, one_more, first, shard.of, fail_fast=fail_fast)


def run_chunks_in_processes(
    target: str,
    options: Options,
    cases: Iterable[Case],
    settings: JudgeSettings,
    tick: Callable[[int], None],
    shard: Shard = WHOLE,
) -> Iterator[ChunkResult]:
    """Yield the chunks of a run from several processes, each of which opens the target."""
    done = 0
    # Not forked: torch and NumPy have threads here already.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(
        jobs(options, target), context, initializer=_ChunkWorker.open, initargs=(target, options)
    )
    try:
        chunks = ((*some, shard.of, settings) for some in _split(cases, shard))
        for chunk in executor.map(_ChunkWorker.run, chunks):
            done += len(chunk.case_results)
            tick(done)
            yield chunk
    finally:
        executor.shutdown(cancel_futures=True)


def _split(cases: Iterable[Case], shard: Shard) -> Iterator[tuple[int, Sequence[Case]]]:
    """Yield the chunks of a shard with the place of their first case, as they are drawn."""
    drawn, start = islice(cases, shard.number - 1, None, shard.of), shard.number - 1
    while some := list(islice(drawn, CHUNK_SIZE)):
        yield start, some
        start += len(some) * shard.of


class _ChunkWorker:
    """One process of several: it opens the target once."""

    _open = ExitStack()
    _candidate: Candidate
    _fail_fast: bool

    @classmethod
    def open(cls, target: str, options: Options) -> None:
        """Open the target; its process ends with this one."""
        gc.set_threshold(100_000)  # arrays and check results make no cycles worth looking for
        cls._candidate = cls._open.enter_context(opened(target, options))
        cls._fail_fast = options.fail_fast

    @classmethod
    def run(cls, asked: tuple[int, Sequence[Case], int, JudgeSettings]) -> ChunkResult:
        """Run one chunk."""
        first, cases, step, settings = asked
        chunk = run_chunk(
            cls._candidate, cases, settings, _nothing, first, step, fail_fast=cls._fail_fast
        )
        # So that the collecting process need not load torch to name its version.
        chunk.environment = None if first else environment()
        return chunk


def _nothing() -> None:
    """Do nothing: other processes show no progress."""
