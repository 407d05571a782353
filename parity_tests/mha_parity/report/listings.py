"""What ``mha-parity list`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console


def show(what: str, console: Console) -> None:
    """Print the conventions, the features or the bugs."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in _ROWS[what]():
        table.add_row(name, text)
    console.print(table)


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
