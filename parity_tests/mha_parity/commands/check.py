"""``mha-parity check``: a verdict on each target, on the terminal and in files."""

from __future__ import annotations

import sys
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import mha_torch
from mha_parity.core.environment import require_extra
from mha_parity.core.errors import UsageError
from mha_parity.core.option_flags import from_namespace
from mha_parity.core.options import DEFAULT_TARGET, FORCED_ENGINES, Options
from mha_parity.core.verdict import Outcome, Refusal
from mha_parity.report import files, github, terminal
from mha_parity.report.progress import error_console, progress
from mha_parity.run.check import check as run
from mha_parity.run.dask_executor import dask_cluster
from mha_parity.run.recorded_answers import need_torch_or_answers
from mha_parity.targets.load import require_place
from mha_parity.targets.programs.command import EXEC
from mha_parity.worker.open_target import opened

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from rich.console import Console

    from mha_parity.core.candidate import Candidate
    from mha_parity.core.verdict import Verdict

REFUSED = 2  # the exit status of a target that cannot be judged
# The worst of several targets decides over all of them, best first.
OUTCOMES_BEST_FIRST = (Outcome.PASS.exit_status, Outcome.INCONCLUSIVE.exit_status, REFUSED,
         Outcome.FAIL.exit_status)  # fmt: skip
# Fewer cases leave switches of the layer untried.
LEAST_CASES = 40
OWN = (DEFAULT_TARGET, *FORCED_ENGINES)


def check(asked: argparse.Namespace, console: Console) -> int:
    """Judge every target and show its verdict; return the exit status.

    Raises
    ------
    ValueError
        There is nothing to judge by, or a report cannot be written.

    """
    options = from_namespace(asked)
    need_torch_or_answers(options)
    need_reports(asked)
    runs = runs_of(asked, options)
    several = len(runs) > 1
    nowhere = [each for target, _ in runs if (each := _nowhere(target))]
    _say_refused(nowhere, several=several)  # a misspelt path is said before others are judged
    runs = [run for run in runs if run[0] not in {each.target for each in nowhere}]
    address = asked.scheduler
    with nullcontext() if address is None else dask_cluster(address) as executor:
        verdicts, refused = _all_judged(runs, executor) if runs else ([], [])
    report_verdicts(verdicts, asked, console, [*nowhere, *refused])
    _say_refused(refused, several=several)
    refused += nowhere
    statuses = [v.outcome.exit_status for v in verdicts] + [REFUSED] * bool(refused)
    return worst_status(statuses)


def worst_status(statuses: list[int]) -> int:
    """Return the exit status over several targets."""
    return max(statuses, key=OUTCOMES_BEST_FIRST.index)


def runs_of(asked: argparse.Namespace, options: Options) -> list[tuple[str, Options]]:
    """Return each target that is named, or the default ones, with its options."""
    targets = asked.targets + [f"{EXEC}{command}" for command in asked.exec]
    return [(target, options) for target in targets] or default_runs(options)


def need_reports(asked: argparse.Namespace) -> None:
    """Make sure, before a long run, that the reports asked for can be made.

    Raises
    ------
    ValueError
        A file cannot be written, or what makes the page is not installed.

    """
    files.require_writable_files(getattr(asked, kind) for kind in files.MAKE)
    if asked.html:
        require_extra("jinja2", "report")
        require_extra("matplotlib", "report")


def report_verdicts(
    verdicts: list[Verdict],
    asked: argparse.Namespace,
    console: Console,
    refused: Sequence[Refusal] = (),
) -> None:
    """Print the verdicts; the reports named are written as well, with what was refused.

    Raises
    ------
    UsageError
        A report could not be written: said when all others are, and the verdicts are printed.

    """
    names = {kind: getattr(asked, kind) for kind in files.MAKE}
    # Before anything is printed: a pipe that closes early loses no file.
    reports = files.write_reports(verdicts, names, refused)
    written = [f" {line}" for line in reports.lines]
    if asked.github:
        files.append_summary(verdicts, refused)
        written += github.workflow_commands(verdicts)
        written += [github.could_not_judge(_with_target(each), [each.target]) for each in refused]
    for verdict in verdicts:
        terminal.print_verdict(verdict, console, verbose=asked.verbose)
    terminal.print_overview(verdicts, console)
    for line in written:
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    if reports.lost:
        raise UsageError(" ".join(reports.lost))


def _all_judged(
    runs: list[tuple[str, Options]], executor: Executor | None
) -> tuple[list[Verdict], list[Refusal]]:
    """Return the verdicts, and why targets are refused; one refused target ends no others.

    The process of the next own layer starts while one is judged, and torch is loaded while the
    first does; targets of others would take memory from each other.
    """
    verdicts, refused = [], []
    ahead = all(target in OWN and not options.in_process for target, options in runs)
    with ExitStack() as started:
        following = started.enter_context(opened(*runs[0])) if ahead else None
        if ahead and runs[0][1].answers is None:
            _ = mha_torch.multihead_attention
        for (target, options), after in zip_longest(runs, runs[1:]):
            candidate = following
            if ahead and after is not None:
                following = started.enter_context(opened(*after))
            try:
                verdicts.append(judge_target(target, options, executor, candidate))
            except UsageError as mistake:
                refused.append(Refusal(target, str(mistake)))
    return verdicts, refused


def _nowhere(target: str) -> Refusal | None:
    """Return why a target is refused whose text names no file or module, None where it does."""
    try:
        require_place(target)
    except UsageError as mistake:
        return Refusal(target, str(mistake))
    return None


def _say_refused(refused: Sequence[Refusal], *, several: bool) -> None:
    for each in refused:
        sys.stderr.write(f"mha-parity: {'refused: ' if several else ''}{_with_target(each)}\n")


def _with_target(refused: Refusal) -> str:
    """Return the sentence, which has to name the target: a function's name says no file."""
    named = refused.target in refused.sentence
    return refused.sentence if named else f"{refused.target}: {refused.sentence}"


def default_runs(options: Options) -> list[tuple[str, Options]]:
    """Return the own layer with three fifths of the cases, and one fifth for each forced engine.

    Each has LEAST_CASES at least, or all where there are fewer.
    """
    least = min(options.cases, LEAST_CASES)
    share = max(options.cases // 5, least)
    rest = max(options.cases - share * len(FORCED_ENGINES), least)
    forced = [(target, replace(options, cases=share)) for target in FORCED_ENGINES]
    return [(DEFAULT_TARGET, replace(options, cases=rest)), *forced]


def judge_target(
    target: str,
    options: Options,
    executor: Executor | None = None,
    started: Candidate | None = None,
) -> Verdict:
    """Return the verdict on one target; progress goes to stderr, so that a pipe has the report.

    ``started`` is the target where it was opened before.
    """
    with (
        progress(error_console(), target) as tick,  # says where an interrupt comes, opening too
        opened(target, options) if started is None else nullcontext(started) as candidate,
    ):
        return run(candidate, options, target=target, progress=tick, executor=executor)
