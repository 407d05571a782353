"""``mha-parity list``: the conventions, features, bugs and right variants that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from mha_parity import catalogue
from mha_parity.core.features import AXES
from mha_parity.report.columns import ReportText
from mha_parity.targets.bind import KNOWN

if TYPE_CHECKING:
    from rich.console import Console


WHOLE_LINES = 10_000  # columns


def print_listing(what: str | None, console: Console) -> None:
    """Print the conventions, features, bugs or variants; without a name the number of each."""
    rows = _ROWS[what]() if what else _lists()
    # A pipe takes an entry per line, for grep and the like.
    width = WHOLE_LINES if what and not console.is_terminal else console.width
    page = ReportText(width, names=max(len(name) for name, _ in rows))
    page.block([(name, Text(text)) for name, text in rows])
    for line in page.lines[1:]:
        console.print(line, soft_wrap=True)


def _lists() -> list[tuple[str, str]]:
    return [
        (f"mha-parity list {name}", f"{len(rows())} {WHAT[name]}") for name, rows in _ROWS.items()
    ]


def _conventions() -> list[tuple[str, str]]:
    return [(each.name, each.call) for each in KNOWN.values()]


def _features() -> list[tuple[str, str]]:
    return [(f"{a}={v}", words) for a, values in AXES.items() for v, words in values.items()]


def _bugs() -> list[tuple[str, str]]:
    return [(bug.id, bug.title) for bug in catalogue.catalogue().values() if not bug.equivalent]


def _variants() -> list[tuple[str, str]]:
    return [(bug.id, bug.title) for bug in catalogue.catalogue().values() if bug.equivalent]


WHAT = {
    "conventions": "ways in which a target can be called",
    "features": "features in which problems differ, as --features takes them",
    "bugs": "wrong attentions that can be named; mha-parity explain ID describes one",
    "variants": "unusual ways to compute the same, which pass",
}
_ROWS = {"conventions": _conventions, "features": _features, "bugs": _bugs, "variants": _variants}
