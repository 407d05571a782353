"""Write the reference pages that follow from the code: command, conventions, features, ..."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from mha_parity.catalogue import catalogue
from mha_parity.catalogue.registry import FAMILIES
from mha_parity.checks.call_effects import CHECKS
from mha_parity.checks.metamorphic import RELATIONS
from mha_parity.command_line import parser
from mha_parity.core.features import AXES
from mha_parity.targets.bind import KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def write_reference(folder: Path) -> None:
    """Write one Markdown page for each reference table into ``folder``."""
    folder.mkdir(exist_ok=True)
    pages = {
        "command": command(),
        "conventions": conventions(),
        "features": features(),
        "checks": checks(),
        "bugs": bugs(),
    }
    for name, lines in pages.items():
        text = "\n".join(lines) + "\n"
        page = folder / f"{name}.md"
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
    "gradient of X": "so does the gradient of X, where gradients are judged",
    "fully masked rows": "rows that see no key are NaN, 0 or uniform, as demanded",
    "systematic error": "signed errors scatter around 0 over the run",
    "call completes": "the target answers and does not raise, hang or leave",
}


def checks() -> Iterator[str]:
    """Yield a row for each check: what is compared, what is related, what is watched."""
    related = {name: (kind.__doc__ or "").splitlines()[0] for name, kind in RELATIONS.items()}
    tables = {
        "With the reference": ("holds where", ANSWERS),
        "Without a reference: a problem is changed in a way whose effect is known": (
            "change and effect",
            related,
        ),
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


def bugs() -> Iterator[str]:
    """Yield a section for each wrong attention of the catalogue, family by family."""
    yield from ("# The catalogue of bugs", "")
    wrong = [bug for bug in catalogue().values() if not bug.equivalent]
    variants = len(catalogue()) - len(wrong)
    seen = sum(bool(bug.sources) for bug in wrong)
    yield (
        f"{len(wrong)} wrong attentions and {variants} unusual right ones, which pass. Of the "
        f"wrong ones {seen} name threads of real projects; of the others no thread is known. "
        "`mha-parity explain ID` prints an entry."
    )
    shown = None
    for bug in catalogue().values():
        if bug.family != shown:
            shown = bug.family
            yield from ("", f"## {FAMILIES[shown].capitalize()}")
        yield from ("", f"### {bug.id}", "", f"{bug.title[0].upper()}{bug.title[1:]}.", "")
        rows = {
            "computes": f"`{bug.wrong}`",
            "instead of": f"`{bug.right}`",
            "visible": bug.visible_when,
            "remedy": bug.remedy,
            "seen in": ", ".join(link(source) for source in bug.sources),
        }
        yield from (f"- **{name}**: {text}" for name, text in rows.items() if text)


def link(source: str) -> str:
    """Return a Markdown link for `owner/repo#number`, any other source as it is."""
    repository, mark, number = source.partition("#")
    if repository.count("/") == 1 and mark and number.isdecimal():
        return f"[{source}](https://github.com/{repository}/issues/{number})"
    return f"`{source}`"
