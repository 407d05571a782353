"""Pictures of a run as SVG: time and memory against L, and the ratio of every task."""

from __future__ import annotations

import dataclasses
import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes

    from mha_parity.bench.results import BenchReport, ContenderRow, TaskResult
    from mha_parity.bench.stats import Interval
    from mha_parity.bench.tasks import Task

TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
LEAST_LENGTHS = 3  # points that make a line worth drawing
COLOURS = {
    "numpy-weights": "#7aa6d6", "numpy": "#1f5fa8", "numpy-prepared": "#0b2e59",
    "torch-weights": "#f0b48a", "torch-eval-weights": "#d9a441", "torch": "#e2671c",
    "torch-fast": "#a33c00", "target": "#2f8f4e",
}  # fmt: skip
MARKS = dict(zip(COLOURS, "svDPXo^*", strict=True))
STYLE: Any = {
    "font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "mha-parity",
    "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


def write_plots(report: BenchReport, folder: str) -> Iterator[str]:
    """Write the pictures that the run has figures for; yield their paths."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    place = Path(folder)
    place.mkdir(exist_ok=True)
    with mpl.rc_context(STYLE):
        for name, figure in (
            ("bench-lengths.svg", lengths(report, Figure)),
            ("bench-ratios.svg", ratios_figure(report, Figure)),
        ):
            if figure is not None:
                path = os.fspath(place / name)
                figure.savefig(path, metadata={"Date": None, "Creator": None})
                yield path


def lengths(report: BenchReport, figure_class: Any) -> Any:
    """Return the figure of time and memory against L, or None where too few L were timed."""
    results = _by_length(report)
    if len(results) < LEAST_LENGTHS:
        return None
    figure = figure_class(figsize=(9, 4.6), layout="constrained")
    time, memory = figure.subplots(1, 2)
    for name, rows in _by_name(results).items():
        points = [(result.task.size.length, row) for result, row in rows]
        look = {"color": COLOURS[name], "marker": MARKS[name], "label": points[0][1].label}
        time.plot([x for x, _ in points], [row.seconds for _, row in points], **look)
        held = [(x, row.memory / 2**20) for x, row in points if row.memory]
        memory.plot(*zip(*held, strict=True), **look)
    size = results[0].task.size
    for axes, title in ((time, "seconds a call"), (memory, "MiB at the peak")):
        _logarithmic(axes, [result.task.size.length for result in results], title)
    handles, labels = time.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    what = f"self-attention, N = {size.batch}, E = {size.embed_dim}, H = {size.num_heads}"
    figure.suptitle(f"{what}, {_machine(report)}", fontsize=10)
    return figure


def ratios_figure(report: BenchReport, figure_class: Any) -> Any:
    """Return the figure of the ratio to torch's fastest path, task by task, or None."""
    shown = [r for r in report.results if any(_points(0, r.rows))]
    if not shown:
        return None
    figure = figure_class(figsize=(9, 1.3 + 0.34 * len(shown)), layout="constrained")
    axes = figure.subplots()
    points = [point for n, result in enumerate(shown) for point in _points(n, result.rows)]
    names = list(dict.fromkeys(name for _, name, _, _ in points))
    for name in names:
        own = [
            (n + _shift(names, name), ratio, label) for n, x, label, ratio in points if x == name
        ]
        _whiskers(axes, name, own)
    axes.axvline(1, color="#555555", linewidth=1)
    axes.set_xscale("log")
    low, high = (pick(t.median for *_, t in points) for pick in (min, max))
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.set_xlim(min(0.5, low / 1.5), max(2, high * 1.5))
    axes.minorticks_off()
    axes.set_ylim(-0.7, len(shown) - 0.3)
    axes.set_yticks(range(len(shown)), [result.task.name for result in shown])
    axes.invert_yaxis()
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    axes.set_xlabel("time over that of torch's fastest path (left of 1: faster than torch)")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    axes.set_title(f"N,L,E,H; {_machine(report)}", fontsize=10)
    return figure


Point = tuple[int, str, str, "Interval"]


def _points(line: int, rows: tuple[ContenderRow, ...]) -> Iterator[Point]:
    """Yield what is compared with torch: who returns weights, with torch returning them too."""
    for row in rows:
        ratio = row.weights_ratio or row.ratio
        if ratio is not None and not row.name.startswith("torch"):
            label = f"{row.label}, against torch with weights" if row.weights_ratio else row.label
            yield line, row.name, label, ratio


def _shift(names: list[str], name: str) -> float:
    """Return how far below its task's line a contender stands, so that none hides another."""
    return 0.2 * (names.index(name) - (len(names) - 1) / 2)


def _whiskers(axes: Axes, name: str, points: list[tuple[float, Interval, str]]) -> None:
    middle = [ratio.median for _, ratio, _ in points]
    reach = [[r.median - r.low for _, r, _ in points], [r.high - r.median for _, r, _ in points]]
    axes.errorbar(
        middle, [y for y, _, _ in points], xerr=reach, fmt=MARKS[name], markersize=4,
        color=COLOURS[name], label=points[0][2], linewidth=1.5,
    )  # fmt: skip


def _by_length(report: BenchReport) -> list[TaskResult]:
    """Return the results that differ in L alone: the family of most lengths, by rising length."""
    families: defaultdict[Task, dict[int, TaskResult]] = defaultdict(dict)
    for result in report.results:
        size = result.task.size
        families[_family(result.task)].setdefault(size.length, result)
    largest = max(families.values(), key=len, default={})
    return [largest[length] for length in sorted(largest)]


def _family(task: Task) -> Task:
    return dataclasses.replace(task, size=dataclasses.replace(task.size, length=0))


def _by_name(results: list[TaskResult]) -> dict[str, list[tuple[TaskResult, ContenderRow]]]:
    found: defaultdict[str, list[tuple[TaskResult, ContenderRow]]] = defaultdict(list)
    for result in results:
        for row in result.rows:
            if row.status == "timed":
                found[row.name].append((result, row))
    return found


def _logarithmic(axes: Axes, lengths: list[int], title: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.minorticks_off()
    axes.set_xlabel("L")
    axes.set_title(title, fontsize=10)
    axes.grid(color="#dddddd")


def _machine(report: BenchReport) -> str:
    of = report.environment
    return f"{of['cpu']}, {of['threads']} threads, NumPy {of['numpy']}, torch {of['torch']}"
