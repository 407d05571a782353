"""Progress of a benchmark: a bar on a terminal, a line a task elsewhere."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console


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
    """Writes a line to stderr when another task begins."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._last = -1

    def __call__(self, done: int, what: str) -> None:
        if done != self._last:
            self._last = done
            name = what.partition(": ")[0]
            sys.stderr.write(f"task {done + 1} of {self._total}: {name}\n")
