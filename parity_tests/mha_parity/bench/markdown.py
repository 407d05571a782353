"""A run as Markdown for a README: the machine, a line per task, the means over large tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mha_parity.bench import table
from mha_parity.report import units

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.bench.results import BenchReport, ContenderRow, TaskResult

FIRST = ("N,L,E,H", "torch's fastest")
LAST = ("memory, NumPy / torch", "of the peak, NumPy / torch")
PATHS = {"torch": "need_weights=False", "torch-fast": "fast path"}
PLAIN = "numpy"  # whose memory and share stand for our own


def write_markdown(report: BenchReport, file: str) -> None:
    """Write the table into a file."""
    Path(file).write_text("\n".join(lines(report)) + "\n", "utf-8")


def lines(report: BenchReport) -> Iterator[str]:
    """Yield the lines: times of torch, ratios of all others with their 95 % intervals."""
    yield from (f"- {line}" for line in table.machine_lines(report.environment, report.peaks))
    yield ""
    titles = {
        row.name: f"{row.label}, {_ratio_title(row)}"
        for result in report.results
        for row in result.rows
        if not row.name.startswith("torch")
    }
    yield _line(FIRST + tuple(titles.values()) + LAST)
    yield _line(("---", *["---:"] * (len(titles) + 3)))
    for result in report.results:
        yield _line(tuple(_columns(result, tuple(titles))))
    yield ""
    yield from (f"- {line}" for line in table.totals(report))
    if noise := table.disturbance(report):
        yield f"- {noise}"


def _line(columns: tuple[str, ...]) -> str:
    return f"| {' | '.join(columns)} |"


def _columns(result: TaskResult, names: tuple[str, ...]) -> Iterator[str]:
    rows = {row.name: row for row in result.rows if row.status == "timed"}
    rival = rows.get(result.rival or "")
    yield result.task.name
    yield _fastest(rival)
    for name in names:
        yield _ratio(rows.get(name))
    both = (rows.get(PLAIN), rival)
    yield " / ".join(units.format_memory(row.memory if row else None) for row in both)
    yield " / ".join(units.format_share(row.share if row else None) for row in both)


def _ratio_title(row: ContenderRow) -> str:
    return "× torch with weights" if row.weights else "× torch"


def _fastest(rival: ContenderRow | None) -> str:
    if rival is None or rival.seconds is None:
        return "none"
    return f"{units.format_seconds(rival.seconds)}, {PATHS.get(rival.name, rival.label)}"


def _ratio(row: ContenderRow | None) -> str:
    if row is None:
        return "not timed"
    found = row.weights_ratio if row.weights else row.ratio
    return str(found).replace(" ", " (", 1) + ")" if found else "alone"
