"""``mha-parity explain BUG``: the story of one bug, with numbers computed on the spot."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table
from rich.text import Text

from mha_parity.candidate import CandidateError
from mha_parity.drawing import draw_cases
from mha_parity.gold import golden
from mha_parity.making import make
from mha_parity.wrong import FAMILIES, catalogue

if TYPE_CHECKING:
    from rich.console import Console

    from mha_parity.problem import Problem
    from mha_parity.values import Array
    from mha_parity.wrong import Bug

TRIED = 150  # cases among which the smallest that shows the bug is looked for
VISIBLE = 1e-3  # of the largest output: less is no example for the eye


def find(name: str) -> Bug:
    """Return the bug called ``name``.

    Raises
    ------
        ValueError: the catalogue has none of that name.

    """
    bugs = catalogue()
    if name in bugs:
        return bugs[name]
    close = difflib.get_close_matches(name, bugs, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "see mha-parity list bugs."
    raise ValueError(f"got the bug {name!r}, but the catalogue has no such one; {hint}")


def show(name: str, console: Console) -> None:
    """Print the story of the bug called ``name``."""
    bug = find(name)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("bug", Text(f"{bug.title}  [{bug.id}]", style="bold"))
    table.add_row("family", FAMILIES[bug.family])
    table.add_row("right", Text(bug.right, style="green"))
    table.add_row("wrong", Text(bug.wrong, style="red"))
    table.add_row("shows", bug.visible_when)
    if bug.equivalent:
        table.add_row("equivalent", bug.equivalent)
    table.add_row("remedy", bug.remedy)
    if bug.aliases:
        table.add_row("same output", ", ".join(bug.aliases))
    table.add_row("seen in", ", ".join(bug.sources) or "the work of students; no thread is known")
    console.print(table)
    _example(bug, console)


def _example(bug: Bug, console: Console) -> None:
    """Print the smallest problem found that shows the bug, with both answers."""
    found = smallest(bug)
    if found is None:
        console.print("\nNo output of a single call shows it: watch conduct or gradients for it.")
        return
    problem, wrong, right = found
    console.print(Text(f"\nsmallest example found: {problem.case.id}", style="bold"))
    with np.printoptions(precision=4, suppress=True, threshold=40, edgeitems=2):
        console.print(Text(f"right\n{right[0]}\nwrong\n{wrong[0]}"))


def smallest(bug: Bug) -> tuple[Problem, Array, Array] | None:
    """Return the smallest of some problems on which the bug shows, its output and the right one."""
    cases = draw_cases(bug.candidate().offer, TRIED, 0)
    float64 = (case.replace(dtype="float64", memory="c") for case in cases)
    for case in sorted(float64, key=lambda c: (c.queries * c.keys * c.embed_dim * c.batch, c.id)):
        problem = make(case)
        right = np.asarray(golden(problem).output, dtype=np.float64)
        try:
            wrong = np.asarray(bug.function()(problem).output, dtype=np.float64)
        except (CandidateError, ValueError, IndexError, FloatingPointError):
            continue  # where this bug crashes it shows no numbers
        if right.size and np.isfinite(right).all() and _differs(wrong, right):
            return problem, wrong, right
    return None


def _differs(wrong: Array, right: Array) -> bool:
    if wrong.shape != right.shape:
        return True
    apart = np.abs(wrong - right)
    return bool(np.isnan(apart).any() or apart.max() > VISIBLE * np.abs(right).max())
