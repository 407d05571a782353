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
from mha_parity.bench.posing import pose
from mha_parity.bench.worker import Build

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mha_parity.bench.contenders import Contender
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

    ``status`` is "timed", "wrong", "failed" or "left out"; of all but the first ``reason`` says
    why. ``times`` are seconds a call, one a round; ``memory`` is in bytes.
    """

    contender: Contender
    status: str = "timed"
    reason: str = ""
    times: list[float] = field(default_factory=list)
    memory: int | None = None

    @property
    def median(self) -> float:
        """The median of the times."""
        return statistics.median(self.times)

    def give_up(self, status: str, reason: str) -> None:
        """Take no further part."""
        self.status, self.reason = status, reason
        self.times.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """What came of one task."""

    task: Task
    judged: str
    entries: tuple[Entry, ...]


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
    for entry in entries:
        if reason := obstacle(entry.contender, task, free):
            entry.give_up("left out", reason)
    with ExitStack() as stack:
        booths = _opened(stack, entries, settings)
        tell("drawing")
        posed = pose(task, offer)
        judge = Judge(posed)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mha-parity-"))
        shelf.lay_down(posed, folder)
        del posed
        calls = _judged(booths, judge, folder, tell)
        _rounds(booths, calls, settings.rounds, tell)
        for entry, booth in booths:
            if entry.status == "timed":
                entry.memory = booth.memory()
    return Contest(task=task, judged=judge.words, entries=tuple(entries))


Booths = list[tuple[Entry, Booth]]


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


def _judged(
    booths: Booths, judge: Judge, folder: str, tell: Callable[[str], None]
) -> dict[str, int]:
    """Judge everybody's answer; return how many calls make a turn of those that are right."""
    calls = {}
    for entry, booth in booths:
        tell(f"judging {entry.contender.label}")
        try:
            built = booth.built(Build(folder=folder, part=judge.part))
        except UnableError as why:
            entry.give_up("failed" if why.failed else "left out", str(why))
            continue
        if flaw := judge.flaw(built.answer):
            entry.give_up("wrong", flaw)
            continue
        calls[entry.contender.name] = max(1, round(TURN / max(built.seconds, 1e-9)))
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
