"""Progress of a benchmark: a bar on a terminal, a line a task elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

LINE_EVERY = 20.0  # seconds between lines of one task, so that a log stays readable


@contextmanager
def progress(console: Console, total: int) -> Iterator[Callable[[int, str], None]]:
    """Yield a function of (tasks done, what goes on)."""
    if not console.is_terminal:
        yield _Lines(total)
        return
    columns = (BarColumn(bar_width=16), MofNCompleteColumn(), TimeElapsedColumn())
    text = TextColumn("{task.description}", markup=False)
    with Progress(*columns, text, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, what: bar.update(task, completed=done, description=what)


class _Lines:
    """Writes a line to stderr when another task begins, and now and then what it is at."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._last = -1
        self._next = 0.0

    def __call__(self, done: int, what: str) -> None:
        if done != self._last or time.monotonic() >= self._next:
            self._last = done
            self._next = time.monotonic() + LINE_EVERY
            sys.stderr.write(f"task {done + 1} of {self._total}, {what}\n")
