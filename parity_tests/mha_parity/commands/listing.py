"""What ``mha-parity list`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from mha_parity.report.layout import Layout

if TYPE_CHECKING:
    from rich.console import Console


def show(what: str, console: Console) -> None:
    """Print the conventions, the features or the bugs."""
    rows = _ROWS[what]()
    page = Layout(console.width, names=max(len(name) for name, _ in rows))
    page.block([(name, Text(text)) for name, text in rows])
    for line in page.lines[1:]:
        console.print(line, soft_wrap=True)


def _conventions() -> list[tuple[str, str]]:
    from mha_parity import conventions

    return [(each.name, each.call) for each in conventions.KNOWN.values()]


def _features() -> list[tuple[str, str]]:
    from mha_parity.features import AXES

    return [(f"{a}={v}", words) for a, values in AXES.items() for v, words in values.items()]


def _bugs() -> list[tuple[str, str]]:
    from mha_parity import wrong

    return [(bug.id, bug.title) for bug in wrong.catalogue().values()]


_ROWS = {"conventions": _conventions, "features": _features, "bugs": _bugs}
