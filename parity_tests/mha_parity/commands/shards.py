"""``mha-parity check --shard`` and ``mha-parity merge``: a run in pieces, on several machines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mha_parity.commands.check import need_reports, report_verdicts, runs_of, worst_status
from mha_parity.core.errors import UsageError
from mha_parity.core.option_flags import from_namespace
from mha_parity.core.options import Options
from mha_parity.report import files
from mha_parity.report.progress import error_console, progress
from mha_parity.run import shard_file
from mha_parity.run.chunks import Shard
from mha_parity.run.recorded_answers import need_torch_or_answers
from mha_parity.run.shards import merged, of_one_run, run_shard
from mha_parity.worker.open_target import opened

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from mha_parity.core.verdict import Verdict
    from mha_parity.run.shard_file import ShardRun

# What only a verdict over the whole run can be written as.
OF_MERGE = ("html", "junit", "markdown", "sarif", "github")


def check_shard(asked: argparse.Namespace, console: Console) -> int:
    """Judge one shard of each target and write it; return 0, whatever was found.

    Raises
    ------
    UsageError
        An option makes no sense for a shard, or a target cannot be judged.

    """
    options, shard = from_namespace(asked), Shard(*asked.shard)
    need_torch_or_answers(options)
    if not asked.json:
        raise UsageError(f"got --shard {shard}, but should have --json FILE too; name the file.")
    given = [name for name in (*OF_MERGE, "fail_fast", "scheduler") if getattr(asked, name)]
    given += ["max_failures"] if options.max_failures not in {0, Options().max_failures} else []
    if given:
        flag = given[0].replace("_", "-")
        raise UsageError(f"got --{flag} with --shard, which has no verdict; leave --{flag} out.")
    files.require_writable_files([asked.json])
    runs = [_run_shard(target, own, shard) for target, own in runs_of(asked, options)]
    files.write_text("shard", asked.json, shard_file.shards_document(runs))
    for run in runs:
        results = run.found.case_results
        failing = sum(each.fails for each in results)
        counts = f"{len(results)} of {run.total} cases, {failing} fail"
        console.print(f"shard {shard} of {run.target}: {counts}", soft_wrap=True, highlight=False)
    console.print(f"written to {asked.json}, for mha-parity merge", soft_wrap=True, highlight=False)
    return 0


def _run_shard(target: str, options: Options, shard: Shard) -> ShardRun:
    with progress(error_console(), target) as tick, opened(target, options) as candidate:
        return run_shard(candidate, options, target, shard, tick)


def merge(asked: argparse.Namespace, console: Console) -> int:
    """Show the verdict over all shards of a run; return its exit status.

    Raises
    ------
    UsageError
        The files are not all shards of one run, or the target cannot be opened.

    """
    need_reports(asked)
    runs = of_one_run([(path, shard_file.read_shards(path)) for path in asked.files])
    drawn = any(getattr(asked, name) for name in ("html", "markdown", "github"))
    verdicts = [_merged(shards, draw=drawn) for shards in runs]
    report_verdicts(verdicts, asked, console)
    return worst_status([verdict.outcome.exit_status for verdict in verdicts])


def _merged(shards: list[ShardRun], *, draw: bool) -> Verdict:
    options = replace(shards[0].options, draw=draw)
    need_torch_or_answers(options)
    with opened(shards[0].target, options) as candidate:
        return merged(shards, candidate, options)
