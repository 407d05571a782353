"""One task's contest: everyone answers and is judged, then they are timed in turn."""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mha_parity.bench import machine, shelf
from mha_parity.bench.booth import Booth, UnableError
from mha_parity.bench.contenders import obstacle
from mha_parity.bench.intervals import LEAST
from mha_parity.bench.judging import Judge
from mha_parity.bench.posing import case_of, companion, pose
from mha_parity.bench.worker import Build

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mha_parity.bench.contenders import Contender
    from mha_parity.bench.judging import Finding
    from mha_parity.bench.sizes import Task
    from mha_parity.features import Offer

TURN = 0.02  # seconds that a turn lasts at least: the clock and the switch are far below it
PAUSE = 0.04  # seconds between turns: OpenBLAS's threads go on spinning for 26 ms after a product
BUDGET = 8.0  # seconds that the rounds of one task take, where more rounds than the least fit
MOST = 21  # rounds: the interval narrows with the root of their number


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a run is timed. ``rounds`` None: as many as fit the budget."""

    threads: int
    rounds: int | None = None
    text: str | None = None
    convention: str | None = None


@dataclass(slots=True, kw_only=True)
class Entry:
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

    def judged(self, finding: Finding) -> None:
        """Take the judge's finding; the worst error of several stays."""
        found = [each for each in (self.units, finding.units) if each is not None]
        self.units = max(found, default=None)
        if finding.status != "timed":
            self.give_up(finding.status, finding.reason)

    def give_up(self, status: str, reason: str) -> None:
        """Take no further part."""
        self.status, self.reason = status, reason
        self.times.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """What came of one task. ``disturbed``: how many cores other processes used meanwhile."""

    task: Task
    judged: str
    entries: tuple[Entry, ...]
    disturbed: float | None = None


def hold(
    task: Task,
    contenders: Sequence[Contender],
    settings: Settings,
    tell: Callable[[str], None],
    offer: Offer | None = None,
) -> Contest:
    """Judge and time the contenders on one task. ``tell`` is called with what goes on."""
    free = machine.free_memory()
    entries = [Entry(contender=each) for each in contenders]
    case = case_of(task, offer)
    for entry in entries:
        if reason := obstacle(entry.contender, task, case, free, offer):
            entry.give_up("left out", reason)
    with ExitStack() as stack:
        booths = _opened(stack, entries, settings)
        tell("drawing")
        grounds = [_Ground.of(each, offer, stack) for each in _judged_on(task)]
        calls = _judged(booths, grounds, tell)
        quiet = Disturbance(booths)
        _rounds(booths, calls, settings.rounds, tell)
        disturbed = quiet.cores()
        for entry, booth in booths:
            if entry.status == "timed":
                entry.memory = booth.memory()
    return Contest(
        task=task, judged=_words(task, grounds), entries=tuple(entries), disturbed=disturbed
    )


Booths = list[tuple[Entry, Booth]]


def _judged_on(task: Task) -> list[Task]:
    """Return what is judged before the clock starts; the last is the task itself."""
    return list(dict.fromkeys((companion(task), task))) if task.backward else [task]


def _words(task: Task, grounds: list[_Ground]) -> str:
    first = f"gradients judged at {companion(task).size}, " if len(grounds) > 1 else ""
    return first + grounds[-1].judge.words


class Disturbance:
    """How busy others keep the cores from now on: all that the machine does, less our own part."""

    def __init__(self, booths: Booths) -> None:
        self._booths = booths
        self._start = self._now()

    def cores(self) -> float | None:
        """Return how many cores others used on average, or None where nobody tells."""
        if self._start is None or (now := self._now()) is None:
            return None
        wall, busy, own = (b - a for a, b in zip(self._start, now, strict=True))
        return max(0.0, (busy - own) / wall)

    def _now(self) -> tuple[float, float, float] | None:
        busy = machine.busy_seconds()
        if busy is None:
            return None
        own = sum(booth.used() for entry, booth in self._booths if entry.status == "timed")
        return time.perf_counter(), busy, own + time.process_time()


def _opened(stack: ExitStack, entries: list[Entry], settings: Settings) -> Booths:
    """Start the processes; they load while the task is drawn."""
    return [
        (entry, stack.enter_context(_booth(entry.contender, settings)))
        for entry in entries
        if entry.status == "timed"
    ]


def _booth(contender: Contender, settings: Settings) -> Booth:
    own = contender.library == "target"
    return Booth(
        contender,
        threads=settings.threads,
        text=settings.text if own else None,
        convention=settings.convention if own else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    """A task laid down in a folder, and its judge."""

    judge: Judge
    folder: str

    @staticmethod
    def of(task: Task, offer: Offer | None, stack: ExitStack) -> _Ground:
        """Draw the task."""
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mha-parity-"))
        posed = pose(task, offer)
        shelf.lay_down(posed, folder)
        return _Ground(judge=Judge(posed), folder=folder)

    def finding(self, booth: Booth) -> tuple[Finding, float]:
        """Return what the contender's answer comes to, and how long a call takes."""
        built = booth.built(Build(folder=self.folder, part=self.judge.part))
        return self.judge.finding(built.answer), built.seconds


def _judged(booths: Booths, grounds: list[_Ground], tell: Callable[[str], None]) -> dict[str, int]:
    """Judge everybody on every ground; return how many calls on the last make a turn."""
    calls = {}
    for entry, booth in booths:
        tell(f"judging {entry.contender.label}")
        try:
            for ground in grounds:
                finding, seconds = ground.finding(booth)
                entry.judged(finding)
                if entry.status != "timed":
                    break
                calls[entry.contender.name] = max(1, round(TURN / max(seconds, 1e-9)))
        except UnableError as why:
            entry.give_up("failed" if why.failed else "left out", str(why))
    return calls


def _rounds(
    booths: Booths, calls: dict[str, int], wanted: int | None, tell: Callable[[str], None]
) -> None:
    """Time all in turn, every other round backwards, so that nobody always follows the same."""
    racing = [(entry, booth) for entry, booth in booths if entry.status == "timed"]
    if not racing:
        return
    rounds, done = wanted or LEAST, 0
    while done < rounds:
        tell(f"round {done + 1} of {rounds}")
        started = time.perf_counter()
        for entry, booth in racing[:: -1 if done % 2 else 1]:
            time.sleep(PAUSE)
            try:
                entry.times.append(booth.turn(calls[entry.contender.name]))
            except UnableError as why:
                entry.give_up("failed", str(why))
        racing = [(entry, booth) for entry, booth in racing if entry.status == "timed"]
        done += 1
        if wanted is None and done == 1:
            spent = time.perf_counter() - started
            rounds = min(MOST, max(LEAST, int(BUDGET / spent)))
