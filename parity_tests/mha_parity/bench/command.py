"""``mha-parity bench``: from parsed arguments to an exit status."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from mha_parity.bench import compare, json_document, machine, markdown, table
from mha_parity.bench import peak as peaks
from mha_parity.bench.contenders import CONTENDERS, KERNELS, target_contender
from mha_parity.bench.options import BOTH
from mha_parity.bench.results import BenchReport, TaskResult, result
from mha_parity.bench.stats import MIN_VALUES
from mha_parity.bench.target import target_offer
from mha_parity.bench.tasks import SETS, tasks
from mha_parity.bench.timing import BenchSettings, time_task
from mha_parity.core.errors import UsageError
from mha_parity.report.progress import progress

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from mha_parity.bench.tasks import Task


def bench(asked: argparse.Namespace, console: Console) -> int:
    """Run the benchmark, print its tables, write its files; return the exit status.

    Raises
    ------
    UsageError
        An option makes no sense, or a file cannot be read or written.

    """
    settings = _settings(asked)
    baseline = json_document.read_report(asked.compare) if asked.compare else None
    json_document.require_writable_outputs([asked.json, asked.markdown], asked.plot)
    report = run_tasks(asked_tasks(asked), settings, console)
    table.print_totals(report, console)
    if asked.json:
        json_document.write_json(report, asked.json)
        console.print(f" JSON written to {asked.json}", soft_wrap=True)
    if asked.markdown:
        markdown.write_markdown(report, asked.markdown)
        console.print(f" table written to {asked.markdown}", soft_wrap=True)
    if asked.plot:
        from mha_parity.bench import plots

        for path in plots.write_plots(report, asked.plot):
            console.print(f" picture written to {path}", soft_wrap=True)
    grew = baseline is not None and compare.print_changes(
        baseline, json_document.bench_document(report), console
    )
    return int(grew or any(each.fails for each in report.results))


def run_tasks(work: list[Task], settings: BenchSettings, console: Console) -> BenchReport:
    """Return the report on all tasks; each one's table is printed when it is done."""
    started = time.perf_counter()
    offer = target_offer(settings) if settings.text is not None else None
    projected = settings.projected or (offer is not None and "mha" not in offer["form"])
    contenders, form = [*(KERNELS if projected else CONTENDERS)], "qkv" if projected else "mha"
    work = [replace(task, form=form) for task in work]
    if settings.text is not None:
        contenders.append(target_contender(settings.text, form))
    results: list[TaskResult] = []
    with progress(console, "the benchmark", "timing", "tasks") as steps:
        steps.at("measuring the peak of matrix products", 0, len(work))
        measured = peaks.measure_peak(settings.threads)
        environment = peaks.peak_environment(settings, measured)
        peak = max(measured.flops.values())
        table.heading(environment, measured.flops, console)
        for number, task in enumerate(work):

            def tell(what: str, number: int = number, task: Task = task) -> None:
                steps.at(f"{task.name}: {what}", number, len(work))

            contest = time_task(task, contenders, settings, tell, offer)
            results.append(result(contest, peak))
            table.print_task_table(results[-1], console)
    return BenchReport(
        environment=environment,
        peaks=measured.flops,
        results=tuple(results),
        seconds=time.perf_counter() - started,
    )


def _settings(asked: argparse.Namespace) -> BenchSettings:
    rounds = asked.rounds or (MIN_VALUES if asked.quick else None)
    if rounds is not None and rounds < MIN_VALUES:
        raise UsageError(
            f"--rounds is {rounds}, but should be at least {MIN_VALUES}: fewer bound no median."
        )
    return BenchSettings(
        threads=asked.threads or machine.cores(),
        rounds=rounds,
        text=asked.target,
        convention=asked.convention,
        projected=asked.projected,
    )


def asked_tasks(asked: argparse.Namespace) -> list[Task]:
    """Return the tasks of a parsed command line: its sizes, with and without what is asked."""
    sizes = asked.sizes or SETS["quick" if asked.quick else "default"]
    kinds = (BOTH[asked.causal], BOTH[asked.padded], BOTH[asked.backward])
    return tasks(sizes, *kinds, dtype=asked.dtype)
