"""``mha-parity explain BUG``: one bug, with numbers computed on the spot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from mha_parity.catalogue import FAMILIES, catalogue
from mha_parity.commands.bug_example import (
    RUNS,
    TRIED,
    VISIBLE,
    BugExample,
    bug_example,
    cases,
    smallest,
)
from mha_parity.core.errors import UsageError
from mha_parity.core.features import label
from mha_parity.core.option_values import hint_of
from mha_parity.report.columns import ReportText

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from mha_parity.catalogue import Bug
    from mha_parity.core.arrays import Array


def bug_named(name: str) -> Bug:
    """Return the bug called ``name``.

    Raises
    ------
    UsageError
        The catalogue has none of that name.

    """
    bugs = catalogue()
    if name in bugs:
        return bugs[name]
    hint = hint_of(name, bugs, "see mha-parity list bugs.", most=3)
    raise UsageError(f"got the bug {name!r}, but the catalogue has no such one; {hint}")


def print_bug(name: str, console: Console) -> None:
    """Print the description of the bug called ``name``."""
    bug = bug_named(name)
    said = list(bug_rows(bug))
    page = ReportText(console.width, names=max(len(each) for each, _ in said))
    page.block(said)
    for line in page.lines[1:]:
        console.print(line, soft_wrap=True)
    console.print()
    if bug.equivalent:
        console.print(" No example: no problem drawn here tells it from the right attention.")
    elif bug.make is not None:
        console.print(
            " No example: it takes more than one call, or a look at conduct. A check of the target "
            "watches for it."
        )
    else:
        _example(bug, console)


def bug_rows(bug: Bug) -> Iterator[tuple[str, Text]]:
    """Yield what the catalogue knows about the bug, a row each."""
    yield "bug", Text(f"{bug.title}  [{bug.id}]", style="bold")
    yield "family", Text(FAMILIES[bug.family])
    yield "right", Text(bug.right, style="green")
    yield "wrong", Text(bug.wrong, style="red")
    yield "shows", Text(bug.visible_when)
    if bug.needs:
        yield "surest", Text(f"where the problem has: {_needed(bug)}")
    if bug.equivalent:
        yield "proof", Text(f"equal: {bug.equivalent}")
    if bug.beyond:
        yield "beyond", Text(f"the cases drawn here: {bug.beyond}")
    yield "remedy", Text(bug.remedy)
    if bug.aliases:
        yield "alias", Text(", ".join(a.replace("(right)", "the right one") for a in bug.aliases))
    yield "seen in", Text(", ".join(bug.sources) or "no thread is known")


def _needed(bug: Bug) -> str:
    axes = (" or ".join(label(a, value) for value in values) for a, values in bug.needs.items())
    return "; and: ".join(axes)


def _example(bug: Bug, console: Console) -> None:
    """Print in how many cases the bug shows, and the smallest of them with both answers."""
    examples: list[BugExample] = []
    tried = 0
    for seed in RUNS:
        examples += [e for case in cases(bug, seed) if (e := bug_example(bug, case)) is not None]
        tried += TRIED
        if examples:
            break
    console.print(f" It shows in {len(examples)} of {tried} cases of the suite.", highlight=False)
    if not examples:
        return
    least = smallest(bug, examples)
    console.print(Text(f" The smallest found: {least.problem.case.id}\n", style="bold"))
    for title, array in _arrays(least):
        console.print(Text(f" {title}", style="dim"))
        console.print(Text(_printed(array)))


def _arrays(found: BugExample) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of an example that are small enough to print, of its first sample."""
    problem = found.problem
    if problem.case.form == "qkv":
        for name in ("query", "key", "value"):
            yield name, getattr(problem, name)[:1]
    for name in ("key_padding_mask", "attn_mask"):
        mask = getattr(problem, name)
        if mask is not None:
            text = f"{name} (True: hidden)" if mask.dtype == np.bool_ else name
            yield text, mask if name == "attn_mask" and mask.ndim == 2 else mask[:1]
    yield f"{found.what}, right ({found.right.dtype})", found.right[:1]
    if found.wrong is None:
        yield f"{found.what}, wrong: none, it raises an error", np.zeros(0)
    else:
        yield f"{found.what}, wrong ({found.wrong.dtype})", found.wrong[:1]
        if (difference := found.difference) is not None:
            yield f"{found.what}, wrong − right", difference[:1]


def _printed(array: Array) -> str:
    if not array.size:
        return ""
    rows = array[0] if array.ndim > 2 else array
    largest = np.abs(np.nan_to_num(rows.astype(np.float64))).max()
    plain = largest >= VISIBLE  # smaller numbers would be zeros at four digits
    with np.printoptions(precision=4, suppress=plain, threshold=60, edgeitems=3, linewidth=74):
        return "\n".join(f"   {line}" for line in str(rows).splitlines())
