"""The verdict as the JSON document that CI and scripts read: schema ``mha-parity/2``."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from mha_parity.core.features import label
from mha_parity.core.verdict import TARGET

if TYPE_CHECKING:
    from mha_parity.core.check_result import Place
    from mha_parity.core.verdict import (
        Accuracy,
        CheckRow,
        Diagnosis,
        Failure,
        FailureGroup,
        FeatureRow,
        Refusal,
        Source,
        Verdict,
    )

SCHEMA = "mha-parity/2"
REFUSED = "refused"


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as plain JSON values."""
    return {
        "schema": SCHEMA,
        "target": verdict.target,
        "source": _source(verdict.source) if verdict.source else None,
        "convention": verdict.convention,
        "outcome": verdict.outcome.value,
        "sentence": verdict.sentence,
        "dtype_finding": verdict.dtype_finding,
        "cases": {
            "drawn": verdict.drawn,
            "run": verdict.run,
            "passed": verdict.passed,
            "failed": verdict.failed,
            "inconclusive": verdict.inconclusive,
            "reasons": dict(verdict.reasons),
            "stopped_early": verdict.stopped_early,
        },
        "features": [_feature(row) for row in verdict.features],
        "parameters": [dataclasses.asdict(each) for each in verdict.parameters],
        "checks": [_check(row) for row in verdict.checks],
        "failures": [_failure(failure) for failure in verdict.failures],
        "failure_groups": [_group(group) for group in verdict.failure_groups],
        "diagnosis": [_diagnosis(each) for each in verdict.diagnosis],
        "accuracy": {each.dtype: _accuracy(each, verdict) for each in verdict.accuracy},
        "sensitivity": dict(verdict.sensitivity),
        "measured_cases": verdict.measured_cases,
        "notes": list(verdict.notes),
        "seconds": round(verdict.seconds, 3),
        "environment": dict(verdict.environment),
    }


def refusal(refused: Refusal) -> dict[str, Any]:
    """Return what stands in place of a verdict where a target was refused."""
    return {
        "schema": SCHEMA,
        "target": refused.target,
        "outcome": REFUSED,
        "sentence": refused.sentence,
    }


def _source(source: Source) -> dict[str, Any]:
    return {
        "file": source.file,
        "line": source.line,
        "raised_at": source.raised_at or None,
        "suspects": [line for line, _ in source.suspects],
    }


def _accuracy(whole: Accuracy, verdict: Verdict) -> dict[str, Any]:
    """Return one dtype's errors: over all cases, of torch's paths there, and by feature."""
    rows = [row for row in verdict.accuracy_table if row.dtype == whole.dtype]
    named = dict.fromkeys((row.axis, row.value) for row in rows if row.axis)
    return _measure(whole, rows) | {
        "features": {
            f"{axis}={value}": _measure(target, rows)
            for axis, value in named
            for target in _contenders(rows, axis, value)
            if target.contender == TARGET
        }
    }


def _measure(target: Accuracy, rows: list[Accuracy]) -> dict[str, Any]:
    others = _contenders(rows, target.axis, target.value)
    paths = {row.contender: _errors(row) for row in others if row.contender != TARGET}
    return _errors(target) | {"torch": paths}


def _contenders(rows: list[Accuracy], axis: str, value: str) -> list[Accuracy]:
    return [row for row in rows if (row.axis, row.value) == (axis, value)]


def _errors(row: Accuracy) -> dict[str, Any]:
    return {
        "median_times_torch": number(row.median_times_torch),
        "worst_times_torch": number(row.worst_times_torch),
        "bits_lost": number(row.bits_lost),
        "bits_right": number(row.bits_right),
        "cases": row.cases,
    }


def number(value: float) -> float | str:
    """Return the number; JSON has no NaN and no infinity, so these become words."""
    return value if math.isfinite(value) else str(value)


def _feature(row: FeatureRow) -> dict[str, Any]:
    return {
        "name": f"{row.axis}={row.value}",
        "title": label(row.axis, row.value),
        "status": row.status,
        "cases": row.cases,
        "failed": row.failed,
        "reason": row.reason,
        "seconds": round(row.seconds, 6),
    }


def _check(row: CheckRow) -> dict[str, Any]:
    return dataclasses.asdict(row) | {"seconds": round(row.seconds, 6)}


def _failure(failure: Failure) -> dict[str, Any]:
    check_result = failure.check_result
    return {
        "case": failure.case.id,
        "shrunk_from": failure.shrunk_from.id if failure.shrunk_from else failure.case.id,
        "check": check_result.check,
        "where": _place(check_result.where) if check_result.where else None,
        "error": number(check_result.error),
        "allowed": number(check_result.allowed),
        "severity": check_result.severity.value,
        "detail": check_result.detail,
        "replay": failure.replay,
    }


def _group(group: FailureGroup) -> dict[str, Any]:
    """Return features by name, a list for each axis."""
    return {
        name: [[f"{axis}={value}" for value in values] for axis, values in sets]
        for name, sets in dataclasses.asdict(group).items()
    }


def _place(place: Place) -> dict[str, int | None]:
    """Return the place; null for the head where heads are mixed, for the sample of a weight."""
    named = {"sample": place.sample, "head": place.head}
    known = {name: number if number >= 0 else None for name, number in named.items()}
    return dataclasses.asdict(place) | known


def _diagnosis(each: Diagnosis) -> dict[str, Any]:
    return {
        "bug": each.bug,
        "title": each.title,
        "remedy": each.remedy,
        "explains": each.explains,
        "confident": each.confident,
        "aliases": list(each.aliases),
        "evidence": each.evidence,
        "seen_in": each.seen_in,
    }
