"""The benchmark in a terminal: a table per task, and what all tasks come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mha_parity.bench.stats import geometric_mean
from mha_parity.bench.tasks import LARGE, Task
from mha_parity.report import units

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console

    from mha_parity.bench.results import BenchReport, ContenderRow, TaskResult
    from mha_parity.bench.stats import Interval

LABEL = 20
WIDTHS = (8, 14, 14, 8, 5, 5, 5)
BESIDE_WEIGHTS = "× with weights"
TITLES = ("time", "× torch", BESIDE_WEIGHTS, "memory", "GF/s", "peak", "error")
NARROW = 6  # columns of figures that fit 80 characters
ROOM = 100  # characters from which there is room for all of them, and for wider gaps

DISTURBED = 0.1  # of the cores
LEGEND = (
    "× torch: the time over that of torch's fastest path in the same round, the median of all "
    "rounds and its 95 % interval. memory: growth beyond the loaded library. GF/s: 10⁹ operations "
    "a second in the products that the task needs; peak: their share of the faster product above."
)
ERROR = " error: of the answer, in units of what the judge allows."


def heading(environment: Mapping[str, str], peaks: Mapping[str, float], console: Console) -> None:
    """Print the machine and the versions that the figures belong to."""
    console.print()
    for line in machine_lines(environment, peaks):
        console.print(Text(f" {line}", style="dim"))


def machine_lines(of: Mapping[str, str], peaks: Mapping[str, float]) -> list[str]:
    """Return the processor, a line per library, and settings that choose a kernel."""
    return [
        f"{of['cpu']}, {of['cores']} cores, {of['threads']} threads each; Python {of['python']}",
        _library("NumPy", of["numpy"], of["numpy_blas"], peaks["numpy"]),
        _library("torch", of["torch"], of["torch_blas"], peaks["torch"]),
        *(f"{name}={value}" for name, value in of.items() if name.isupper()),
    ]


def _library(name: str, version: str, kernel: str, peak: float) -> str:
    return f"{name} {version} ({kernel}): {units.format_rate(peak)} GFLOP/s in float32 products"


def print_task_table(result: TaskResult, console: Console) -> None:
    """Print one task's table."""
    rounds = max((len(row.times) for row in result.rows), default=0)
    judged = f"  {result.judged}, {rounds} rounds" if rounds else f"  {result.judged}"
    console.print()
    console.print(Text.assemble((f" N,L,E,H = {result.task.name}", "bold"), (judged, "dim")))
    roomy = console.width >= ROOM
    weights = any(row.weights for row in result.rows)
    shown = [
        number
        for number in range(len(TITLES) if roomy else NARROW)
        if weights or TITLES[number] != BESIDE_WEIGHTS
    ]
    table = Table.grid(padding=(0, 2 if roomy else 1, 0, 0))
    table.add_column(width=LABEL, no_wrap=True)
    for title, width in [(TITLES[number], WIDTHS[number]) for number in shown]:
        table.add_column(width=width, no_wrap=True, justify="left" if "×" in title else "right")
    table.add_row("", *[TITLES[number] for number in shown], style="dim")
    rest = Table.grid(padding=(0, 1, 0, 0))
    rest.add_column(width=LABEL, no_wrap=True)
    for row in result.rows:
        if row.status == "timed":
            columns = list(_columns(row))
            table.add_row(f" {row.label}", *[columns[number] for number in shown])
        else:
            style = "dim" if row.status == "left out" else "bold red"
            rest.add_row(f" {row.label}", Text(f"{row.status}: {row.reason}"), style=style)
    console.print(table)
    if rest.row_count:
        console.print(rest)


def _columns(row: ContenderRow) -> Iterator[Text]:
    assert row.seconds is not None  # noqa: S101  (it was timed)
    yield Text(units.format_seconds(row.seconds))
    yield Text(str(row.ratio or ""), style=_colour(row.ratio))
    yield Text(str(row.weights_ratio or ""), style=_colour(row.weights_ratio))
    yield Text(units.format_memory(row.memory))
    yield Text(units.format_rate(row.flops))
    yield Text(units.format_share(row.share))
    yield Text("" if row.error is None else f"{row.error:.2f}")


def _colour(ratio: Interval | None) -> str:
    """Return green for surely faster, yellow for surely slower; nothing where chance decides."""
    if ratio is None or ratio.low <= 1 <= ratio.high:
        return ""
    return "green" if ratio.high < 1 else "yellow"


def print_totals(report: BenchReport, console: Console) -> None:
    """Print what the ratios come to over all tasks, and how to read them."""
    console.print()
    if noise := disturbance(report):
        console.print(Padding(Text(noise, style="yellow"), (0, 0, 1, 1)))
    for line in totals(report):
        console.print(Padding(Text(line), (0, 0, 0, 1)))
    legend = LEGEND + (ERROR if console.width >= ROOM else "")
    console.print(Padding(Text(legend, style="dim"), (0, 0, 0, 1)))
    console.print(Text(f" {report.seconds:.0f} s\n", style="dim"))


def disturbance(report: BenchReport) -> str:
    """Return a sentence on other processes that used more than a tenth of the cores, or none."""
    cores = float(report.environment["cores"])
    taken = [result.disturbed for result in report.results if result.disturbed is not None]
    if not taken or max(taken) <= DISTURBED * cores:
        return ""
    return (
        f"Other processes used up to {max(taken):.1f} of {cores:.0f} cores meanwhile: threads that "
        "wait for each other lose most by that, so the ratios are not those of a quiet machine."
    )


def totals(report: BenchReport) -> Iterator[str]:
    """Yield the geometric means: large tasks, forward, and with backward."""
    names = {row.name: row.label for result in report.results for row in result.rows}
    for backward in (False, True):
        large = [
            result
            for result in report.results
            if result.task.backward == backward
            and result.task.flops >= Task(size=LARGE[0], form=result.task.form).flops
        ]
        for name, label in names.items():
            if not name.startswith("torch"):
                yield from _total(
                    large, name, label, "forward + backward" if backward else "forward"
                )


def _total(results: list[TaskResult], name: str, label: str, what: str) -> Iterator[str]:
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
