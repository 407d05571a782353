"""Write and read the shards of a run: JSON with all that the verdict over the whole run needs."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.case import parse
from mha_parity.core.check_result import CheckResult, Place, Severity
from mha_parity.core.errors import UsageError
from mha_parity.core.options import Options
from mha_parity.judging.accuracy import MeasuredError
from mha_parity.judging.systematic_error import SystematicErrorTest
from mha_parity.run.case_run import CaseResult
from mha_parity.run.check import RunResult
from mha_parity.run.chunks import Shard

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA = "mha-parity-shard/1"
REMEDY = "write it anew by `mha-parity check --shard`"


@dataclass(frozen=True, eq=False)
class ShardRun:
    """One shard of the run over one target.

    ``options`` are those of the whole run, ``total`` the number of its cases.
    """

    target: str
    options: Options
    shard: Shard
    total: int
    found: RunResult


def shards_document(runs: Sequence[ShardRun]) -> str:
    """Return the file of one shard of the runs over one or several targets."""
    document = {"schema": SCHEMA, "runs": [_encoded(run) for run in runs]}
    return json.dumps(document, allow_nan=False)


def read_shards(path: str) -> list[ShardRun]:
    """Return the runs of a file, a shard of each.

    Raises
    ------
    UsageError
        There is no such file, or it is not what ``shards_document`` returns.

    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"got {path}, which cannot be read: {error.strerror}; {REMEDY}.") from None
    except ValueError:
        raise UsageError(f"got {path}, which is no JSON; {REMEDY}.") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise UsageError(f"got {path} of schema {schema}, but should be {SCHEMA}; {REMEDY}.")
    try:
        return [_decoded(run) for run in document["runs"]]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UsageError(f"got {path}, which is damaged; {REMEDY}.") from None


def _encoded(run: ShardRun) -> dict[str, Any]:
    found = run.found
    return {
        "target": run.target,
        "options": dataclasses.asdict(run.options),
        "shard": [run.shard.number, run.shard.of],
        "total": run.total,
        "environment": found.environment,
        "seconds": found.seconds,
        "cases": [_case(each) for each in found.case_results],
        "state": [_check(each) for each in found.state],
        "systematic": _systematic(found.systematic),
    }


def _decoded(run: dict[str, Any]) -> ShardRun:
    found = RunResult(
        case_results=[_case_result(each) for each in run["cases"]],
        systematic=_systematic_test(run["systematic"]),
        state=[_check_result(each) for each in run["state"]],
        environment=run["environment"],
        seconds=float(run["seconds"]),
    )
    options = Options(**{name: _hashable(value) for name, value in run["options"].items()})
    return ShardRun(run["target"], options, Shard(*run["shard"]), int(run["total"]), found)


def _hashable(value: Any) -> Any:
    """Return the lists of JSON as the tuples that options have."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _case(result: CaseResult) -> dict[str, Any]:
    return {
        "id": result.case.id,
        "checks": [_check(each) for each in result.check_results],
        "exposes": None if result.exposes is None else sorted(result.exposes),
        "measured": [
            [m.contender, _number(m.times_torch), _number(m.bits)] for m in result.measured
        ],
        "seconds": result.seconds,
        "remarks": list(result.remarks),
        "parameters": {name: bool(passed) for name, passed in result.parameters.items()},
        "answer_dtype": result.answer_dtype,
        "held": list(result.held),
        "float32_units": None if result.float32_units is None else _number(result.float32_units),
    }


def _case_result(entry: dict[str, Any]) -> CaseResult:
    exposes = entry["exposes"]
    return CaseResult(
        case=parse(entry["id"]),
        check_results=tuple(_check_result(each) for each in entry["checks"]),
        exposes=None if exposes is None else frozenset(exposes),
        measured=tuple(
            MeasuredError(contender, float(times), float(bits))
            for contender, times, bits in entry["measured"]
        ),
        seconds=float(entry["seconds"]),
        remarks=tuple(entry["remarks"]),
        parameters=entry["parameters"],
        answer_dtype=entry["answer_dtype"],
        held=tuple(entry["held"]),
        float32_units=None if entry["float32_units"] is None else float(entry["float32_units"]),
    )


def _check(result: CheckResult) -> dict[str, Any]:
    times = result.times_torch
    return {
        "case": result.case.id,
        "check": result.check,
        "severity": result.severity.value,
        "error": _number(result.error),
        "allowed": _number(result.allowed),
        "where": None if result.where is None else dataclasses.astuple(result.where),
        "times_torch": None if times is None else _number(times),
        "improbable": result.improbable,
        "bound": None if result.bound is None else _number(result.bound),
        "detail": result.detail,
    }


def _check_result(entry: dict[str, Any]) -> CheckResult:
    times, where = entry["times_torch"], entry["where"]
    return CheckResult(
        case=parse(entry["case"]),
        check=entry["check"],
        severity=Severity(entry["severity"]),
        error=float(entry["error"]),
        allowed=float(entry["allowed"]),
        where=None if where is None else Place(*where),
        times_torch=None if times is None else float(times),
        improbable=bool(entry["improbable"]),
        bound=None if entry["bound"] is None else float(entry["bound"]),
        detail=entry["detail"],
    )


def _number(value: float) -> float | str:
    """Return the number; JSON has no NaN and no infinity, so these become words."""
    return float(value) if math.isfinite(value) else str(float(value))


def _systematic(test: SystematicErrorTest) -> dict[str, Any]:
    """Return the sums over the cases, the bits of each in base64."""
    return {
        "sums": [
            [dtype, group, base64.b64encode(rows.tobytes()).decode()]
            for (dtype, group), rows in test.sums.items()
        ],
        "spread": {dtype: counts.tolist() for dtype, counts in test.spread_counts.items()},
        "last": {dtype: case.id for dtype, case in test.last.items()},
    }


def _systematic_test(entry: dict[str, Any]) -> SystematicErrorTest:
    test = SystematicErrorTest()
    for dtype, group, text in entry["sums"]:
        rows = np.frombuffer(base64.b64decode(text))
        test.sums[dtype, group] += rows.reshape(test.sums[dtype, group].shape)
    for dtype, counts in entry["spread"].items():
        test.spread_counts[dtype] += counts
    test.last = {dtype: parse(text) for dtype, text in entry["last"].items()}
    return test
