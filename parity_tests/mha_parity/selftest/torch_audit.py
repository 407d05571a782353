"""Audit torch: where the paths of its own module disagree, a case for each finding.

``mha-parity audit fast``, ``slow``, ``sdpa`` or ``all`` runs the findings of ``mha_torch.trial`` in
which such a path has a part, here and now, on the torch that is installed. The exit status is 1
where one is found, 3 where none is and a case could not be run, and else 0.
"""

from __future__ import annotations

import json
from pathlib import Path as File
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from mha_parity.core.environment import TORCH, require_extra
from mha_parity.core.errors import UsageError
from mha_parity.core.verdict import Outcome as Verdict
from mha_parity.report import files
from mha_parity.run.torch_changes import is_torch_layer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from rich.console import Console

    from mha_torch.trial import FindingOutcome

SCHEMA = "mha-parity/torch-trial/1"
TARGET = "torch.nn:MultiheadAttention"
GROUPS = ("fast", "slow", "sdpa", "all")
STYLES = {"found": "yellow", "mended": "green", "not run": "red"}


def check_path(path: str, targets: Sequence[str]) -> None:
    """Refuse what ``check --path`` cannot judge.

    Raises
    ------
    UsageError
        There is no torch, ``path`` is no single path, or a target is not torch's own.

    """
    require_extra(TORCH, TORCH)
    from mha_torch import Path

    single = [each.value for each in Path if each.value not in GROUPS]
    if path not in single:
        compared = f"; `mha-parity audit {path}` compares paths" if path in GROUPS else ""
        raise UsageError(
            f"got --path {path}, but parity is judged along one path, of {', '.join(single)}"
            f"{compared}."
        )
    for target in targets or ["the default target"]:
        if not is_torch_layer(target):
            raise UsageError(
                f"--path is for torch's own module, but the target is {target}; leave it out, or "
                f"check {TARGET}."
            )


def main(asked: argparse.Namespace, console: Console) -> int:
    """Run the findings, show them, and write the files that were asked for."""
    require_extra(TORCH, TORCH)
    files.require_writable_files([asked.json, asked.markdown])
    from mha_torch.trial import trial

    outcomes = trial(asked.paths)
    print_findings(outcomes, console)
    if asked.json:
        text = json.dumps(audit_document(outcomes, asked.paths), indent=2) + "\n"
        File(asked.json).write_text(text, encoding="utf-8")
        console.print(f" JSON written to {asked.json}", soft_wrap=True, highlight=False)
    if asked.markdown:
        File(asked.markdown).write_text(audit_markdown(outcomes), encoding="utf-8")
        console.print(f" Markdown written to {asked.markdown}", soft_wrap=True, highlight=False)
    return status(outcomes)


def status(outcomes: Sequence[FindingOutcome]) -> int:
    """Return 1 where paths disagree, 3 where a case could not be run on this torch, or else 0."""
    states = {outcome.state for outcome in outcomes}
    if "found" in states:
        return Verdict.FAIL.exit_status
    lost = "not run" in states
    return Verdict.INCONCLUSIVE.exit_status if lost else Verdict.PASS.exit_status


def sentence(outcomes: Sequence[FindingOutcome]) -> str:
    """Say in one sentence what the trial came to."""
    counts = {state: sum(o.state == state for o in outcomes) for state in STYLES}
    version = outcomes[0].torch if outcomes else "?"
    rest = f", {counts['not run']} could not be run" if counts["not run"] else ""
    return (
        f"torch {version} does not agree with itself in {counts['found']} of {len(outcomes)} "
        f"known ways; {counts['mended']} are mended{rest}."
    )


def print_findings(outcomes: Sequence[FindingOutcome], console: Console) -> None:
    """Print every finding: what differs, on what case, by how much, and who reported it."""
    for number, outcome in enumerate(outcomes, start=1):
        finding = outcome.finding
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True, min_width=8)
        table.add_column(overflow="fold")
        state = Text(f"{outcome.state}", style=STYLES[outcome.state])
        table.add_row(f" {number}", Text(finding.title, style="bold"))
        table.add_row(" state", state + Text(f"  [{finding.name}]", style="dim"))
        table.add_row(" case", Text(finding.case))
        table.add_row(" paths", ", ".join(sorted(finding.paths)))
        for name, value in outcome.numbers.items():
            table.add_row("", Text(f"{name}: {value:.4g}"))
        if outcome.error:
            table.add_row(" because", Text(outcome.error))
        table.add_row(" threads", ", ".join(finding.threads) or "none known")
        console.print(table)
        console.print()
    console.print(f" {sentence(outcomes)}", style="bold", highlight=False)


def audit_document(outcomes: Sequence[FindingOutcome], group: str) -> dict[str, object]:
    """Return the trial as plain data for JSON."""
    return {
        "schema": SCHEMA,
        "target": TARGET,
        "path": group,
        "torch": outcomes[0].torch if outcomes else None,
        "sentence": sentence(outcomes),
        "exit_status": status(outcomes),
        "findings": [
            {
                "name": each.finding.name,
                "state": str(each.state),
                "title": each.finding.title,
                "case": each.finding.case,
                "paths": sorted(each.finding.paths),
                # JSON has no infinity: what never happens is null.
                "numbers": {
                    k: v if abs(v) < float("inf") else None for k, v in each.numbers.items()
                },
                "error": each.error,
                "threads": list(each.finding.threads),
            }
            for each in outcomes
        ],
    }


def audit_markdown(outcomes: Sequence[FindingOutcome]) -> str:
    """Return the trial as a table without measured numbers, which differ between processors."""
    lines = [sentence(outcomes), "", "| what differs | on which case | reported |", "|---|---|---|"]
    for each in outcomes:
        threads = ", ".join(t.removeprefix("pytorch/") for t in each.finding.threads)
        mended = "" if each.state == "found" else f" ({each.state})"
        lines.append(f"| {each.finding.title}{mended} | {each.finding.case} | {threads or '–'} |")
    return "\n".join(lines) + "\n"
