"""Run the chunks elsewhere: on an executor of processes here, or of a cluster.

Any executor of ``concurrent.futures`` serves whose workers can import mha_parity and find the
target by the same text.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import TYPE_CHECKING
from uuid import uuid4

from mha_parity.core.environment import VERSIONS, environment
from mha_parity.core.errors import UsageError
from mha_parity.core.threads import in_one_thread
from mha_parity.oracle.torch_answers import load_torch
from mha_parity.run.chunks import WHOLE, run_chunk, split
from mha_parity.run.dask_executor import keep_freed_memory
from mha_parity.run.process_pool import ProcessPool
from mha_parity.worker.open_target import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Executor, Future

    from mha_parity.core.candidate import Candidate
    from mha_parity.core.case import Case
    from mha_parity.core.options import Options
    from mha_parity.judging.output import JudgeSettings
    from mha_parity.run.chunks import ChunkResult, Shard

# From this number of cases on, several processes save more than the imports of torch cost.
PARALLEL_FROM = 2000
COMPILED_FROM = 200  # the same of a target whose library compiles for each size
WAITING = 256  # chunks handed over and not yet collected, at most: what they hold stays in memory


def process_count(
    options: Options, target: str | None, *, compiles: bool = False, handed: bool = False
) -> int:
    """Return in how many processes to judge: what was asked for, else a core each in long runs.

    ``compiles``: the target's library compiles for each size, which takes longer than all else.
    ``handed``: an executor of other processes is at hand, so that one is enough here.

    Raises
    ------
    UsageError
        Several were asked for, but the candidate cannot be opened again elsewhere.

    """
    movable = can_move(options, target)
    if handed:
        if not movable:
            raise UsageError(f"got an executor of other processes, but {STAYS}.")
        return 1
    if options.jobs is None:
        many = options.cases >= (COMPILED_FROM if compiles else PARALLEL_FROM)
        return _cores() if movable and many else 1
    if options.jobs > 1 and not movable:
        raise UsageError(f"got jobs={options.jobs}, but {STAYS}.")
    return options.jobs


STAYS = (
    "a candidate in this process has one, and so have recorded answers; leave it out, or name a "
    "target that can be opened in several"
)


def can_move(options: Options, target: str | None) -> bool:
    """Return whether another process can open the target."""
    return target is not None and not options.in_process and options.answers is None


def _cores() -> int:
    """Return how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class _ProcessWithoutMain(SpawnProcess):
    """A process that does not run the caller's main module again.

    It finds the target by its text. A script that calls ``judge`` outside of
    ``if __name__ == "__main__":`` would start another run in each process.
    """

    def start(self) -> None:
        """Start the process while an empty module stands for the main one."""
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main


class _SpawnWithoutMain(SpawnContext):
    """Starts processes that are not forked, since torch and NumPy have threads here already."""

    Process = _ProcessWithoutMain


def _end_with_caller() -> None:
    """End this process, and with it the target's, when the process that started it has ended.

    A worker waits for calls on a pipe of which it holds both ends: where the caller is killed, no
    end of file would tell it.
    """

    def wait() -> None:
        caller = parent_process()
        if caller is not None:  # as of each process that `processes` starts
            caller.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def processes(number: int) -> ProcessPool:
    """Return processes of this machine, to be used in a ``with``."""
    return ProcessPool(number, _SpawnWithoutMain(), _end_with_caller)


def run_chunks_on(
    executor: Executor,
    target: str,
    options: Options,
    cases: Iterable[Case],
    settings: JudgeSettings,
    tick: Callable[[int], None],
    shard: Shard = WHOLE,
) -> Iterator[ChunkResult]:
    """Yield the chunks of a run in order, each from wherever the executor ran it.

    Raises
    ------
    UsageError
        A worker cannot open the target, computes with other versions than the first one, or ended.

    """
    done, first = 0, None
    left = split(cases, shard)
    run = uuid4().hex
    waiting: deque[Future[ChunkResult]] = deque()
    try:
        while True:
            for place, some in islice(left, WAITING - len(waiting)):
                call = partial(run_here, run, target, options, settings)
                waiting.append(executor.submit(call, some, place, shard.of))
            if not waiting:
                return
            chunk = _result(waiting.popleft())
            first = first or chunk.environment
            _need_same_versions(first, chunk.environment)
            done += len(chunk.case_results)
            tick(done)
            yield chunk
    finally:
        for future in waiting:
            future.cancel()


def _result(future: Future[ChunkResult]) -> ChunkResult:
    try:
        return future.result()
    except BrokenExecutor:
        raise UsageError(
            "got a worker process that ended before its cases were judged, by a signal or for want "
            "of memory, but it should go on to the end; run fewer at a time, by --jobs 1."
        ) from None


def _need_same_versions(one: dict[str, str] | None, other: dict[str, str] | None) -> None:
    for name in VERSIONS:
        left, right = ((each or {}).get(name) for each in (one, other))
        if left != right:
            raise UsageError(
                f"got workers with {name} {left} and {name} {right}, but all should have the same; "
                "install one of them everywhere."
            )


def run_here(
    run: str,
    target: str,
    options: Options,
    settings: JudgeSettings,
    cases: Sequence[Case],
    place: int,
    step: int,
) -> ChunkResult:
    """Run one chunk in this process, whose target stays open for the next chunk of ``run``."""
    keep_freed_memory()
    load_torch()
    with _OpenTarget.lock, in_one_thread(blas=True):
        candidate = _OpenTarget.of(run, target, options)
        chunk = run_chunk(
            candidate, cases, settings, _nothing, place, step, last_failure=options.last_failure
        )
        # So that the collecting process need not load torch to name its version.
        chunk.environment = environment()
    return chunk


class _OpenTarget:
    """The target that a worker has open: one, since a second one would share its cores.

    The lock is for workers with several threads: a call may seed or set what is global.
    """

    lock = threading.Lock()
    _open = ExitStack()
    _run = ""
    _candidate: Candidate

    @classmethod
    def of(cls, run: str, target: str, options: Options) -> Candidate:
        """Return the open target; one of another run is closed. Its process ends with this one.

        Between two runs in one worker the target's file may have changed.
        """
        if cls._run != run:
            cls._open.close()
            cls._run = ""
            cls._candidate = cls._open.enter_context(opened(target, options))
            cls._run = run
        return cls._candidate


def _nothing(_: object) -> None:
    """Do nothing: other processes show no progress."""
