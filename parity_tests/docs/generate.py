"""Write the reference pages that follow from the code: command, conventions, features, ..."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from bug_pages import bug_pages

from mha_parity.checks.call_effects import CHECKS
from mha_parity.checks.metamorphic import RELATIONS
from mha_parity.command_line import parser
from mha_parity.commands.bug_example import pictured
from mha_parity.core.features import AXES
from mha_parity.targets.bind import KNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mha_parity.catalogue import Bug
    from mha_parity.commands.bug_example import BugExample


def write_reference(folder: Path, picture: Callable[[Bug], BugExample | None] = pictured) -> None:
    """Write one Markdown page for each reference table into ``folder``, and those of the bugs.

    ``picture`` finds what is drawn of a bug, 40 s of search for them all.
    """
    tables = {
        "command": command(),
        "conventions": conventions(),
        "features": features(),
        "checks": checks(),
    }
    texts = {name: "\n".join(lines) + "\n" for name, lines in tables.items()}
    for name, text in (*texts.items(), *bug_pages(picture)):
        page = folder / f"{name}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def command() -> Iterator[str]:
    """Yield the help of each subcommand."""
    top = parser()
    yield from ("# The command", "", "```text", top.format_help().rstrip(), "```", "")
    for action in top._actions:  # noqa: SLF001  (argparse has no public list of subcommands)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  (as above)
            for name, sub in action.choices.items():
                yield from (f"## {name}", "", "```text", sub.format_help().rstrip(), "```", "")


def conventions() -> Iterator[str]:
    """Yield a row for each calling convention."""
    yield from ("# Calling conventions", "", "| name | call |", "|---|---|")
    for name, kind in KNOWN.items():
        yield f"| `{name}` | `{kind.call.replace('|', chr(92) + '|')}` |"


def features() -> Iterator[str]:
    """Yield a row for each value of each feature axis."""
    yield from ("# Features", "", "A feature is one value on one axis: `--features attn=causal`.")
    for axis, values in AXES.items():
        yield from ("", f"## {axis}", "", "| value | meaning |", "|---|---|")
        yield from (f"| `{axis}={value}` | {words} |" for value, words in values.items())


ANSWERS = {
    "output": "the output equals the reference within what rounding allows",
    "weights": "so do the attention weights that are returned",
    "log-sum-exp": "so does that of the scores of each row, where a function returns it",
    "gradient of X": "so does the gradient of X, where gradients are judged",
    "fully masked rows": "rows that see no key are NaN, 0 or uniform, as demanded",
    "rows of padded queries": "where one array is query and key, they are torch's, or are named",
    "systematic error": "signed errors scatter around 0 over the run",
    "call completes": "the target answers and does not raise, hang or leave",
}


def checks() -> Iterator[str]:
    """Yield a row for each check: what is compared, what is related, what is watched."""
    related = {name: (kind.__doc__ or "").splitlines()[0] for name, kind in RELATIONS.items()}
    tables = {
        "With the reference": ("holds where", ANSWERS),
        "With an altered problem": ("change, and its effect on the output", related),
        "Around the call": ("holds where", CHECKS),
    }
    yield from (
        "# Checks",
        "",
        "A check is one question that an answer, or a target, is judged by.",
    )
    for title, (head, rows) in tables.items():
        yield from ("", f"## {title}", "", f"| check | {head} |", "|---|---|")
        yield from (f"| {name} | {with_code(text.rstrip('.'))} |" for name, text in rows.items())


def with_code(text: str) -> str:
    """Return a sentence with its options as code: typography makes a dash of two hyphens."""
    return re.sub(r"(?<![\w`-])--[a-z][a-z-]*", r"`\g<0>`", text)
