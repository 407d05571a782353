"""The verdict as the JSON document that CI and scripts read: schema ``mha-parity/1``."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from mha_parity.features import label

if TYPE_CHECKING:
    from mha_parity.judgement import Place
    from mha_parity.verdict import Accuracy, CheckRow, Diagnosis, Failure, FeatureRow, Verdict

SCHEMA = "mha-parity/1"
TARGET = "target"  # among the contenders of the accuracy table; the others are torch's paths


def document(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as plain JSON values."""
    return {
        "schema": SCHEMA,
        "target": verdict.target,
        "convention": verdict.convention,
        "verdict": verdict.outcome.value,
        "sentence": verdict.sentence,
        "cases": {
            "run": verdict.run,
            "passed": verdict.passed,
            "failed": verdict.failed,
            "inconclusive": verdict.inconclusive,
        },
        "features": [_feature(row) for row in verdict.features],
        "checks": [_check(row) for row in verdict.checks],
        "failures": [_failure(failure) for failure in verdict.failures],
        "diagnosis": [_diagnosis(each) for each in verdict.diagnosis],
        "accuracy": {each.dtype: _accuracy(each, verdict) for each in verdict.accuracy},
        "power": dict(verdict.power),
        "weighed": verdict.weighed,
        "notes": list(verdict.notes),
        "seconds": round(verdict.seconds, 3),
        "environment": dict(verdict.environment),
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
    beside = _contenders(rows, target.axis, target.value)
    paths = {row.contender: _errors(row) for row in beside if row.contender != TARGET}
    return _errors(target) | {"torch": paths}


def _contenders(rows: list[Accuracy], axis: str, value: str) -> list[Accuracy]:
    return [row for row in rows if (row.axis, row.value) == (axis, value)]


def _errors(row: Accuracy) -> dict[str, Any]:
    return {
        "times_torch": number(row.median_times_torch),
        "worst_times_torch": number(row.worst_times_torch),
        "bits": number(row.bits),
        "right_bits": number(row.right_bits),
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
        "note": row.note,
        "seconds": round(row.seconds, 6),
    }


def _check(row: CheckRow) -> dict[str, Any]:
    return dataclasses.asdict(row) | {"seconds": round(row.seconds, 6)}


def _failure(failure: Failure) -> dict[str, Any]:
    judgement = failure.judgement
    return {
        "case": failure.case.id,
        "first_seen": failure.first_seen.id if failure.first_seen else failure.case.id,
        "check": judgement.check,
        "where": _where(judgement.where) if judgement.where else None,
        "error": number(judgement.error),
        "allowed": number(judgement.allowed),
        "severity": judgement.severity.value,
        "detail": judgement.detail,
        "replay": failure.replay,
    }


def _where(place: Place) -> dict[str, int | None]:
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
        "source": each.source,
    }
