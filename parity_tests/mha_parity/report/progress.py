"""Progress: a bar where a terminal can draw one, lines elsewhere, nothing under two seconds."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Item = TypeVar("Item")
STATUS_EVERY = 0.5  # seconds
LINE_EVERY = 10.0  # seconds between plain lines, so that a log stays readable
START_EVERY = 10.0  # the same before the first step


class Steps:
    """A function of (done, total) that shows the phase of a run and how far it is.

    Before the first call the phase is "starting", after the last one "summing up".
    """

    def __init__(self, what: str, phase: str, unit: str) -> None:
        self.what = what
        self.place = ""  # how far it came, once it has begun
        self._phase = phase
        self._unit = unit
        self._next = time.monotonic() + LINE_EVERY

    def __call__(self, done: int, total: int) -> None:
        """Note how far it is, and show it."""
        self.place = f"{self._phase} {self.what}: {done} of {total} {self._unit}"
        self.show(done, total)

    def at(self, what: str, done: int, total: int) -> None:
        """Note a step by its name: ``done`` units lie behind it."""
        self.what = what
        self(done, total)

    def show(self, done: int, total: int) -> None:
        """Write a line to stderr if the last one is ten seconds old."""
        del done, total
        if time.monotonic() >= self._next:
            self._next += LINE_EVERY
            sys.stderr.write(f"{self.place}\n")

    def description(self, done: int = 0, total: int | None = None) -> str:
        """Return the phase and what it works on."""
        if total is None:
            return f"starting {self.what}"
        return f"{self._phase if done < total else 'summing up'} {self.what}"


class BarSteps(Steps):
    """The same on a bar of rich's."""

    def __init__(self, bar: Progress, what: str, phase: str, unit: str) -> None:
        super().__init__(what, phase, unit)
        self._bar = bar
        self._task = bar.add_task(self.description(), total=None)

    def show(self, done: int, total: int) -> None:
        """Move the bar."""
        said = self.description(done, total)
        self._bar.update(self._task, description=said, completed=done, total=total)


class StatusSteps(Steps):
    """The same in one line of a notebook's cell, which is replaced twice a second."""

    def __init__(self, status: Callable[[str], None], what: str, phase: str, unit: str) -> None:
        super().__init__(what, phase, unit)
        self._status = status
        self._next = time.monotonic()

    def show(self, done: int, total: int) -> None:
        """Replace the line if the last one is half a second old."""
        del done, total
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + STATUS_EVERY
            self._status(self.place)


def error_console() -> Console:
    """Return standard error, a terminal only where it is one.

    rich takes it for one where FORCE_COLOR is set, as in many CI jobs, and would draw into the log.
    """
    return Console(stderr=True, force_terminal=sys.stderr.isatty())


def counted(items: Iterable[Item], tick: Callable[[int, int], None], total: int) -> Iterator[Item]:
    """Yield the items; ``tick`` is called with (done, total) before each."""
    for done, item in enumerate(items, start=1):
        tick(done, total)
        yield item


@contextmanager
def _lines_before(steps: Steps) -> Iterator[None]:
    """Write a line to stderr every ten seconds until the first step is noted.

    The small calls of a target that compiles take minutes.
    """
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(START_EVERY) and not steps.place:
            sys.stderr.write(f"{steps.description()}\n")

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


@contextmanager
def progress(
    console: Console,
    what: str,
    phase: str = "judging",
    unit: str = "cases",
    status: Callable[[str], None] | None = None,
) -> Iterator[Steps]:
    """Yield the ``Steps`` of ``what``; a KeyboardInterrupt says how far they came.

    ``status`` replaces one line, which is empty at the end.
    """
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal or console.is_dumb_terminal,
    ) as bar:
        steps = Steps(what, phase, unit) if bar.disable else BarSteps(bar, what, phase, unit)
        if status:
            steps = StatusSteps(status, what, phase, unit)
        plain = bar.disable and not status
        try:
            with _lines_before(steps) if plain else nullcontext():
                yield steps
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(steps.place or steps.description()) from stop
        finally:
            if status:
                status("")
