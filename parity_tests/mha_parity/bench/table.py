"""The benchmark in a terminal: a table a task, and what all tasks come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from mha_parity.bench import words
from mha_parity.bench.intervals import geometric_mean
from mha_parity.bench.sizes import LARGE, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console

    from mha_parity.bench.intervals import Interval
    from mha_parity.bench.results import Report, Result, Row

LABEL = 20
WIDTHS = (8, 14, 14, 8, 5, 5)
TITLES = ("time", "× torch", "× with weights", "memory", "GF/s", "peak")
ROOM = 100  # columns from which there is room for wider gaps


def heading(environment: Mapping[str, str], peaks: Mapping[str, float], console: Console) -> None:
    """Print the machine and the versions that the figures belong to."""
    of = environment
    lines = [
        f"{of['cpu']}, {of['cores']} cores, {of['threads']} threads each; Python {of['python']}",
        _library("NumPy", of["numpy"], of["numpy_blas"], peaks["numpy"]),
        _library("torch", of["torch"], of["torch_blas"], peaks["torch"]),
        *(f"{name}={value}" for name, value in of.items() if name.isupper()),
    ]
    console.print()
    for line in lines:
        console.print(Text(f" {line}", style="dim"))


def _library(name: str, version: str, kernel: str, peak: float) -> str:
    return f"{name} {version} ({kernel}): {words.rate(peak)} GFLOP/s in float32 products"


def show(result: Result, console: Console) -> None:
    """Print one task's table."""
    rounds = max((len(row.times) for row in result.rows), default=0)
    told = f"  {result.judged}, {rounds} rounds" if rounds else f"  {result.judged}"
    console.print()
    console.print(Text.assemble((f" N,L,E,H = {result.task.name}", "bold"), (told, "dim")))
    table = Table.grid(padding=(0, 2 if console.width >= ROOM else 1, 0, 0))
    table.add_column(width=LABEL, no_wrap=True)
    for title, width in zip(TITLES, WIDTHS, strict=True):
        table.add_column(width=width, no_wrap=True, justify="left" if "×" in title else "right")
    table.add_row("", *TITLES, style="dim")
    rest = Table.grid(padding=(0, 1, 0, 0))
    rest.add_column(width=LABEL, no_wrap=True)
    for row in result.rows:
        if row.status == "timed":
            table.add_row(f" {row.label}", *_cells(row))
        else:
            style = "dim" if row.status == "left out" else "bold red"
            rest.add_row(f" {row.label}", Text(f"{row.status}: {row.reason}"), style=style)
    console.print(table)
    if rest.row_count:
        console.print(rest)


def _cells(row: Row) -> Iterator[Text]:
    assert row.seconds is not None  # noqa: S101  (it was timed)
    yield Text(words.seconds(row.seconds))
    yield Text(words.ratio(row.ratio), style=_colour(row.ratio))
    yield Text(words.ratio(row.weights_ratio), style=_colour(row.weights_ratio))
    yield Text(words.memory(row.memory))
    yield Text(words.rate(row.flops))
    yield Text(words.share(row.share))


def _colour(ratio: Interval | None) -> str:
    """Return green for surely faster, yellow for surely slower; nothing where chance decides."""
    if ratio is None or ratio.low <= 1 <= ratio.high:
        return ""
    return "green" if ratio.high < 1 else "yellow"


def summary(report: Report, console: Console) -> None:
    """Print what the ratios come to over all tasks, and how to read them."""
    console.print()
    for line in totals(report):
        console.print(Text(f" {line}"))
    console.print(
        Text(
            " × torch: time over that of torch's fastest path in the same round, the median over "
            "all rounds and its 95 % interval. Memory: growth beyond the loaded library. Peak: "
            "share of the faster float32 product above.",
            style="dim",
        )
    )
    console.print(Text(f" {report.seconds:.0f} s\n", style="dim"))


def totals(report: Report) -> Iterator[str]:
    """Yield the geometric means: large tasks, forward and with backward apart."""
    least = Task(size=LARGE[0]).flops
    names = {row.name: row.label for result in report.results for row in result.rows}
    for backward in (False, True):
        large = [
            result
            for result in report.results
            if result.task.backward == backward and result.task.flops >= least
        ]
        for name, label in names.items():
            if not name.startswith("torch"):
                yield from _total(
                    large, name, label, "forward + backward" if backward else "forward"
                )


def _total(results: list[Result], name: str, label: str, what: str) -> Iterator[str]:
    rows = [(each.task.name, row) for each in results for row in each.rows if row.name == name]
    for field, rival in (
        ("weights_ratio", "torch with weights"),
        ("ratio", "torch's fastest path"),
    ):
        ratios = [(getattr(row, field).median, task) for task, row in rows if getattr(row, field)]
        if len(ratios) < 2 or (field == "ratio" and any(row.weights_ratio for _, row in rows)):
            continue
        mean = geometric_mean(value for value, _ in ratios)
        worst, where = max(ratios)
        yield (
            f"{label}, {what}: {mean:.2f} × {rival} over {len(ratios)} tasks from {LARGE[0]} up "
            f"(geometric mean), at most {worst:.2f} ({where})"
        )
