"""The benchmark as JSON: schema ``mha-parity-bench/1``, which scripts and ``--compare`` read."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mha_parity.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mha_parity.bench.results import BenchReport, TaskResult

SCHEMA = "mha-parity-bench/1"

Document = dict[str, Any]


def bench_document(report: BenchReport) -> Document:
    """Return the report as plain JSON values: seconds, bytes, flop/s."""
    return {
        "schema": SCHEMA,
        "environment": dict(report.environment),
        "sgemm": dict(report.peaks),
        "seconds": round(report.seconds, 3),
        "tasks": [_task(result) for result in report.results],
    }


def _task(result: TaskResult) -> Document:
    task = dataclasses.asdict(result.task)
    return {
        "name": result.task.name,
        **task.pop("size"),
        **task,
        "judged": result.judged,
        "disturbed": result.disturbed,
        "rival": result.rival,
        "weights_rival": result.weights_rival,
        "contenders": [dataclasses.asdict(row) for row in result.rows],
    }


def require_writable_outputs(files: Iterable[str | None], folder: str | None) -> None:
    """Make sure, before a long run, that its files can be written.

    Raises
    ------
    UsageError
        A folder is missing, or a file stands where one should be, or the reverse.

    """
    from mha_parity.report.files import require_writable_files

    require_writable_files(files)
    if folder is None:
        return
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{folder} is a file, but should be a folder for pictures; name another.")
    if not path.parent.is_dir():
        raise UsageError(f"{folder} cannot be made: there is no folder {path.parent}; make it.")


def write_json(report: BenchReport, file: str) -> None:
    """Write the report's document."""
    Path(file).write_text(
        json.dumps(bench_document(report), indent=1, allow_nan=False) + "\n", "utf-8"
    )


def read_report(file: str) -> Document:
    """Return a document that was written.

    Raises
    ------
    UsageError
        There is no such file, or it is none of ours.

    """
    try:
        found = json.loads(Path(file).read_text("utf-8"))
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read ({error.strerror}), but should be a baseline; "
            "write one with mha-parity bench --json FILE."
        ) from None
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise UsageError(
            f"{file} is no document of the schema {SCHEMA}, but should be a baseline; "
            "write one with mha-parity bench --json FILE."
        )
    return found
