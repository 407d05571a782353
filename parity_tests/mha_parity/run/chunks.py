"""Run the cases in chunks, one after another in this process.

Cases are independent of each other, and the chunks are the same wherever they run (``executors``):
the verdict does not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from mha_parity.core.threads import blas_in_one_thread
from mha_parity.judging.systematic_error import SystematicErrorTest
from mha_parity.run.case_run import is_measured, run_cases
from mha_parity.run.fresh_process import is_sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mha_parity.core.candidate import Candidate
    from mha_parity.core.case import Case
    from mha_parity.judging.output import JudgeSettings
    from mha_parity.run.case_run import CaseResult

CHUNK_SIZE = 96  # cases in a chunk
KEPT_FAILURES = 40  # failing cases of a chunk whose arrays are kept for the diagnosis


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
    environment: dict[str, str] | None = None  # of the process that ran it, where another did


class Ending:
    """The end of a run at its last failing case, once a call was answered.

    A target that raises in its first cases may be one that cannot be called at all. Without a last
    failure there is no such end. What float32 in place of float64 explains may hide another bug: it
    is counted where the first failure is the last one.
    """

    def __init__(self, last_failure: int | None) -> None:
        self._last_failure = last_failure
        self._failed = 0
        self._answered = False

    def reached_by(self, case_result: CaseResult) -> bool:
        """Count a case, and return whether the run ends with it."""
        last = self._last_failure
        self._failed += case_result.fails and (last == 1 or not case_result.right_by_float32)
        self._answered = self._answered or case_result.answered
        return last is not None and self._failed >= last and self._answered


def run_chunk(
    candidate: Candidate,
    cases: Sequence[Case],
    settings: JudgeSettings,
    tick: Callable[[CaseResult], None],
    first: int = 0,
    step: int = 1,
    *,
    last_failure: int | None = None,
) -> ChunkResult:
    """Run cases on an open candidate, all or up to the last failure; ``tick`` follows each.

    ``first`` is the place of the first of them in the run, ``step`` the distance to the next.
    """
    chunk = ChunkResult([], SystematicErrorTest())
    kept = {True: 0, False: 0}  # of failures that float32 explains, and of others
    ending = Ending(last_failure)
    for number, case_result in enumerate(run_cases(candidate, cases, settings, first, step)):
        place = first + step * number
        if (
            is_measured(place)
            and case_result.problem
            and case_result.reference
            and case_result.answer
            and not case_result.leaves_out_rows
        ):
            with blas_in_one_thread():
                chunk.systematic.add(case_result.problem, case_result.reference, case_result.answer)
        explained = case_result.right_by_float32
        keep = case_result.fails and kept[explained] < KEPT_FAILURES
        kept[explained] += keep
        without_arrays = case_result.without_arrays(with_answer=is_sampled(place // step))
        chunk.case_results.append(case_result if keep else without_arrays)
        tick(case_result)
        if ending.reached_by(case_result):
            break
    return chunk


def run_chunks(
    candidate: Candidate,
    cases: Iterable[Case],
    settings: JudgeSettings,
    tick: Callable[[int], None],
    shard: Shard = WHOLE,
    *,
    last_failure: int | None = None,
    on_failure: Callable[[], None],
) -> Iterator[ChunkResult]:
    """Yield the chunks of a run in this process.

    ``tick`` gets the number of cases done; ``on_failure`` follows each wrong answer.
    """
    done = 0

    def one_more(case_result: CaseResult) -> None:
        nonlocal done
        done += 1
        tick(done)
        if case_result.fails and case_result.answer is not None:
            on_failure()

    for first, some in split(cases, shard):
        yield run_chunk(
            candidate, some, settings, one_more, first, shard.of, last_failure=last_failure
        )


def split(cases: Iterable[Case], shard: Shard) -> Iterator[tuple[int, Sequence[Case]]]:
    """Yield the chunks of a shard with the place of their first case, as they are drawn."""
    drawn, start = islice(cases, shard.number - 1, None, shard.of), shard.number - 1
    while some := list(islice(drawn, CHUNK_SIZE)):
        yield start, some
        start += len(some) * shard.of
