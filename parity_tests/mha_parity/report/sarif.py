"""The verdict as SARIF 2.1.0, which code scanning services show at the lines of a repository."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import mha_parity
from mha_parity.core.verdict import Outcome
from mha_parity.report import wording
from mha_parity.report.brief import first_line
from mha_parity.report.github import from_workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.core.verdict import Failure, Refusal, Verdict

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
INCONCLUSIVE = "inconclusive"  # the rule of a run that proved nothing


def document(verdicts: Sequence[Verdict], refused: Sequence[Refusal] = ()) -> str:
    """Return the log: one run, a rule for each check, a result for each that failed.

    A target that was refused is a notification of the tool.
    """
    results = [result for verdict in verdicts for result in _results(verdict)]
    named = sorted({result["ruleId"] for result in results})
    driver = {
        "name": "mha-parity",
        "version": mha_parity.__version__,
        "rules": [
            {"id": name, "shortDescription": {"text": f"Equal to torch: {name}"}} for name in named
        ],
    }
    for result in results:
        result["ruleIndex"] = named.index(result["ruleId"])
    run: dict[str, Any] = {"tool": {"driver": driver}, "results": results}
    if refused:
        said = [{"level": "error", "message": {"text": each.sentence}} for each in refused]
        invocation = {"executionSuccessful": False, "toolExecutionNotifications": said}
        run["invocations"] = [invocation]
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2) + "\n"


def _results(verdict: Verdict) -> list[dict[str, Any]]:
    if verdict.outcome is Outcome.INCONCLUSIVE:
        return [_result(verdict, INCONCLUSIVE, verdict.sentence, "warning")]
    seen = {failure.check_result.check: failure for failure in reversed(verdict.failures)}
    return [_result(verdict, check, _text(verdict, seen[check]), "error") for check in sorted(seen)]


def _text(verdict: Verdict, failure: Failure) -> str:
    detail = wording.shorten_output(failure.check_result.detail, 1)
    return "\n".join(filter(None, [first_line(verdict), detail, f"replay: {failure.replay}"]))


def _result(verdict: Verdict, rule: str, text: str, level: str) -> dict[str, Any]:
    """Return one result, at the target's line where a file defines it."""
    stable = hashlib.sha256(f"{verdict.target} {rule}".encode()).hexdigest()
    result: dict[str, Any] = {
        "ruleId": rule,
        "level": level,
        "message": {"text": text},
        "partialFingerprints": {"primaryLocationLineHash": stable},
    }
    source = verdict.source
    if source is not None:
        artifact = {"uri": _uri(source.file)}
        region = {"startLine": source.marked}
        result["locations"] = [
            {"physicalLocation": {"artifactLocation": artifact, "region": region}}
        ]
    return result


def _uri(file: str) -> str:
    """Return a file as an address: from the workspace on, as annotations name it, where in it."""
    path = Path(from_workspace(file))
    return path.as_uri() if path.is_absolute() else quote(path.as_posix(), safe="/,")
