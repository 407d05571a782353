"""Progress: a bar where a terminal can draw one, lines elsewhere, nothing under two seconds."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

LINE_EVERY = 10.0  # seconds between plain lines, so that a log stays readable


@contextmanager
def progress(console: Console, what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (done, total) that shows how far ``what`` is."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield _Lines(what)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(f"judging {what}", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Lines:
    """Writes a line to stderr now and then."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._next = time.monotonic() + LINE_EVERY

    def __call__(self, done: int, total: int) -> None:
        """Write a line when it is time for one."""
        if time.monotonic() >= self._next:
            self._next += LINE_EVERY
            sys.stderr.write(f"judging {self._what}: {done} of {total} cases\n")
