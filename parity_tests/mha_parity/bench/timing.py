"""Time one task: judge each contender's answer, then time all contenders in rounds."""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mha_parity.bench import array_files, machine
from mha_parity.bench.client import UnableError, WorkerClient
from mha_parity.bench.contenders import reason_left_out
from mha_parity.bench.judged_first import Judge
from mha_parity.bench.messages import BuildRequest
from mha_parity.bench.stats import MIN_VALUES
from mha_parity.bench.task_arrays import case_of, draw_task, gradient_task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mha_parity.bench.contenders import Contender
    from mha_parity.bench.judged_first import JudgedAnswer
    from mha_parity.bench.tasks import Task
    from mha_parity.core.features import Offer

LEAST_SECONDS = 0.02  # of a measurement: the clock and a switch of processes cost far less
# Seconds between looks whether the threads of the last contender sleep: OpenBLAS's spin on for a
# tenth of a second after a product, and slow down whoever is timed meanwhile.
LOOK = 0.02
AT_REST = 0.1  # of a look at most: the CPU time of threads that sleep, and of the reply
PATIENCE = 1.0  # seconds to wait for threads that never sleep
BUDGET = 8.0  # seconds that the rounds of one task take, where more rounds than the least fit
MAX_ROUNDS = 21  # rounds: the interval narrows with the root of their number


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSettings:
    """How a run is timed. ``rounds`` None: as many as fit the budget.

    ``projected``: attention on projected heads is timed, in place of whole layers.
    """

    threads: int
    rounds: int | None = None
    text: str | None = None
    convention: str | None = None
    projected: bool = False


@dataclass(slots=True, kw_only=True)
class ContenderTimes:
    """One contender's part in a task: its times, or why there are none.

    ``status`` is "timed", "wrong", "less accurate", "inconclusive", "failed" or "left out"; of all
    but the first ``reason`` says why. ``times`` are seconds a call, one a round; ``memory`` is in
    bytes; ``units`` is the error of the answer in units of what the judge allows.
    """

    contender: Contender
    status: str = "timed"
    reason: str = ""
    times: list[float] = field(default_factory=list)
    memory: int | None = None
    units: float | None = None

    @property
    def median(self) -> float:
        """The median of the times."""
        return statistics.median(self.times)

    def judged(self, finding: JudgedAnswer) -> None:
        """Take the judge's finding; the worst error of several stays."""
        found = [each for each in (self.units, finding.units) if each is not None]
        self.units = max(found, default=None)
        if finding.status != "timed":
            self.leave_out(finding.status, finding.reason)

    def leave_out(self, status: str, reason: str) -> None:
        """Take no further part."""
        self.status, self.reason = status, reason
        self.times.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTimes:
    """Times of one task. ``disturbed``: number of cores that other processes used meanwhile."""

    task: Task
    judged: str
    entries: tuple[ContenderTimes, ...]
    disturbed: float | None = None


def time_task(
    task: Task,
    contenders: Sequence[Contender],
    settings: BenchSettings,
    tell: Callable[[str], None],
    offer: Offer | None = None,
) -> TaskTimes:
    """Judge and time the contenders on one task. ``tell`` is called with what goes on."""
    free = machine.free_memory()
    entries = [ContenderTimes(contender=each) for each in contenders]
    case = case_of(task, offer)
    for entry in entries:
        if reason := reason_left_out(entry.contender, task, case, free, offer):
            entry.leave_out("left out", reason)
    with ExitStack() as stack:
        clients = _opened(stack, entries, settings)
        tell("drawing")
        judged_tasks = [_JudgedTask.of(each, offer, stack) for each in _judged_on(task)]
        calls = _judged(clients, judged_tasks, tell)
        quiet = Disturbance(clients)
        time_rounds(clients, calls, settings.rounds, tell)
        disturbed = quiet.cores()
        for entry, client in clients:
            if entry.status == "timed":
                entry.memory = client.memory()
    return TaskTimes(
        task=task, judged=_words(task, judged_tasks), entries=tuple(entries), disturbed=disturbed
    )


Clients = list[tuple[ContenderTimes, WorkerClient]]


def _judged_on(task: Task) -> list[Task]:
    """Return what is judged before the clock starts; the last is the task itself."""
    return list(dict.fromkeys((gradient_task(task), task))) if task.backward else [task]


def _words(task: Task, judged_tasks: list[_JudgedTask]) -> str:
    first = f"gradients judged at {gradient_task(task).size}, " if len(judged_tasks) > 1 else ""
    return first + judged_tasks[-1].judge.words


class Disturbance:
    """How busy others keep the cores from now on: all that the machine does, less our own part."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._start = self._now()

    def cores(self) -> float | None:
        """Return how many cores others used on average; None where the system reports none."""
        if self._start is None or (now := self._now()) is None:
            return None
        wall, busy, own = (b - a for a, b in zip(self._start, now, strict=True))
        return max(0.0, (busy - own) / wall)

    def _now(self) -> tuple[float, float, float] | None:
        busy = machine.busy_seconds()
        if busy is None:
            return None
        own = sum(client.used() for entry, client in self._clients if entry.status == "timed")
        return time.perf_counter(), busy, own + time.process_time()


def _opened(stack: ExitStack, entries: list[ContenderTimes], settings: BenchSettings) -> Clients:
    """Start the processes; they load while the task is drawn."""
    return [
        (entry, stack.enter_context(_worker_client(entry.contender, settings)))
        for entry in entries
        if entry.status == "timed"
    ]


def _worker_client(contender: Contender, settings: BenchSettings) -> WorkerClient:
    own = contender.library == "target"
    return WorkerClient(
        contender,
        threads=settings.threads,
        text=settings.text if own else None,
        convention=settings.convention if own else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _JudgedTask:
    """A task whose arrays are files of a folder, and its judge."""

    judge: Judge
    folder: str

    @staticmethod
    def of(task: Task, offer: Offer | None, stack: ExitStack) -> _JudgedTask:
        """Draw the task."""
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mha-parity-"))
        task_arrays = draw_task(task, offer)
        array_files.write_arrays(task_arrays, folder)
        return _JudgedTask(judge=Judge(task_arrays), folder=folder)

    def finding(self, client: WorkerClient) -> tuple[JudgedAnswer, float]:
        """Return what the contender's answer comes to, and how long a call takes."""
        built = client.built(BuildRequest(folder=self.folder, part=self.judge.part))
        return self.judge.finding(built.answer), built.seconds


def _judged(
    clients: Clients, judged_tasks: list[_JudgedTask], tell: Callable[[str], None]
) -> dict[str, int]:
    """Judge every contender on every task; return how many calls make a measurement of it."""
    calls = {}
    for entry, client in clients:
        tell(f"judging {entry.contender.label}")
        try:
            for judged_task in judged_tasks:
                finding, seconds = judged_task.finding(client)
                entry.judged(finding)
                if entry.status != "timed":
                    break
                calls[entry.contender.name] = max(1, round(LEAST_SECONDS / max(seconds, 1e-9)))
            wait_at_rest(client)
        except UnableError as why:
            entry.leave_out("failed" if why.failed else "left out", str(why))
    return calls


def wait_at_rest(client: WorkerClient) -> None:
    """Wait until the threads of a process sleep."""
    until = time.perf_counter() + PATIENCE
    used, busy = client.used(), True
    while busy and time.perf_counter() < until:
        time.sleep(LOOK)
        before, used = used, client.used()
        busy = used - before > AT_REST * LOOK


def time_rounds(
    clients: Clients, calls: dict[str, int], wanted: int | None, tell: Callable[[str], None]
) -> None:
    """Time all contenders in each round, in reverse order in every other one."""
    racing = [(entry, client) for entry, client in clients if entry.status == "timed"]
    if not racing:
        return
    rounds, done = wanted or MIN_VALUES, 0
    while done < rounds:
        tell(f"round {done + 1} of {rounds}")
        started = time.perf_counter()
        for entry, client in racing[:: -1 if done % 2 else 1]:
            try:
                entry.times.append(client.measure(calls[entry.contender.name]))
                wait_at_rest(client)
            except UnableError as why:
                entry.leave_out("failed", str(why))
        racing = [(entry, client) for entry, client in racing if entry.status == "timed"]
        done += 1
        if wanted is None and done == 1:
            spent = time.perf_counter() - started
            rounds = min(MAX_ROUNDS, max(MIN_VALUES, int(BUDGET / spent)))
