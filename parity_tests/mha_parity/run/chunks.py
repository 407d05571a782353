"""A run's cases in parts: tried one after the other here, or side by side in several processes.

Cases are independent of each other, so that a part can be tried anywhere. Parts are cut alike and
put together in their order however many processes there are: the verdict does not depend on them.
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

from mha_parity.environment import environment
from mha_parity.opening import opened
from mha_parity.systematic import Systematic
from mha_parity.trial import is_measured, try_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mha_parity.candidate import Candidate
    from mha_parity.case import Case
    from mha_parity.judging import Settings
    from mha_parity.options import Options
    from mha_parity.trial import Trial

SIZE = 96  # cases in a part: a multiple of those on their way to a candidate at a time
KEPT = 40  # failing trials of a part whose arrays are kept for the diagnosis
# Below so many cases starting processes, each of which imports torch, costs more than it saves.
WORTH_IT = 2000


@dataclass(eq=False)
class Part:
    """What came of some cases in a row: their trials, and the sums over them."""

    trials: list[Trial]
    systematic: Systematic
    environment: dict[str, str] | None = None  # of the process that tried the first cases


def tried(
    candidate: Candidate,
    cases: Sequence[Case],
    settings: Settings,
    tick: Callable[[], None],
    first: int = 0,
) -> Part:
    """Try cases on a candidate that is at hand; ``tick`` is called after each.

    ``first`` is the place of the first of them in the run.
    """
    part = Part([], Systematic())
    kept = 0
    for place, trial in enumerate(try_cases(candidate, cases, settings, first), start=first):
        if is_measured(place) and trial.problem and trial.gold and trial.answer:
            part.systematic.add(trial.problem, trial.gold, trial.answer)
        keep = trial.fails and kept < KEPT
        kept += keep
        part.trials.append(trial if keep else trial.light())
        tick()
    return part


def jobs(options: Options, target: str | None) -> int:
    """Return in how many processes to judge: what was asked for, else a core each in long runs.

    Raises
    ------
        ValueError: several were asked for, but the candidate cannot be opened again elsewhere.

    """
    movable = target is not None and not options.in_process
    if options.jobs is None:
        return _cores() if movable and options.cases >= WORTH_IT else 1
    if options.jobs > 1 and not movable:
        raise ValueError(
            f"got jobs={options.jobs}, but a candidate in this process has one; leave jobs out, or "
            "name a target that can be opened in several."
        )
    return options.jobs


def _cores() -> int:
    """Return how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def parts(
    candidate: Candidate,
    cases: Iterable[Case],
    settings: Settings,
    tick: Callable[[int], None],
) -> Iterator[Part]:
    """Yield the parts of a run, tried here; ``tick`` is told how many cases are done."""
    done = 0

    def one_more() -> None:
        nonlocal done
        done += 1
        tick(done)

    for first, some in _cut(cases):
        yield tried(candidate, some, settings, one_more, first)


def parts_elsewhere(
    target: str,
    options: Options,
    cases: Iterable[Case],
    settings: Settings,
    tick: Callable[[int], None],
) -> Iterator[Part]:
    """Yield the parts of a run, tried in several processes that open the target each for itself."""
    done = 0
    # Not forked: torch and NumPy have threads here already.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(
        jobs(options, target), context, initializer=_Worker.open, initargs=(target, options)
    )
    try:
        for part in executor.map(_Worker.part, ((*some, settings) for some in _cut(cases))):
            done += len(part.trials)
            tick(done)
            yield part
    finally:
        executor.shutdown(cancel_futures=True)


def _cut(cases: Iterable[Case]) -> Iterator[tuple[int, Sequence[Case]]]:
    """Yield parts with the place of their first case; drawing goes on while the first are tried."""
    drawn, start = iter(cases), 0
    while some := list(islice(drawn, SIZE)):
        yield start, some
        start += len(some)


class _Worker:
    """What one process of several has: the target, opened once."""

    _open = ExitStack()
    _candidate: Candidate

    @classmethod
    def open(cls, target: str, options: Options) -> None:
        """Open the target; its process ends with this one."""
        gc.set_threshold(100_000)  # arrays and judgements make no cycles worth looking for
        cls._candidate = cls._open.enter_context(opened(target, options))

    @classmethod
    def part(cls, asked: tuple[int, Sequence[Case], Settings]) -> Part:
        """Try one part."""
        first, cases, settings = asked
        part = tried(cls._candidate, cases, settings, _nothing, first)
        # The process that puts parts together need not load torch to say which one it was.
        part.environment = None if first else environment()
        return part


def _nothing() -> None:
    """Tell nobody."""
