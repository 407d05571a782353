"""The verdict for GitHub Actions: annotations at the target's own line, and a step summary."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from mha_parity.core.verdict import Outcome
from mha_parity.report import wording
from mha_parity.report.brief import first_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mha_parity.core.verdict import Verdict

SUMMARY = "GITHUB_STEP_SUMMARY"  # the variable that names the file
WORKSPACE = "GITHUB_WORKSPACE"  # the folder in which paths of annotations begin
LEVEL = {Outcome.FAIL: "error", Outcome.INCONCLUSIVE: "warning"}


def workflow_commands(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Yield a workflow command for each verdict that does not hold."""
    for verdict in verdicts:
        if verdict.outcome not in LEVEL:
            continue
        source = verdict.source
        place = {"title": f"mha-parity: {verdict.target}"}
        if source is not None:
            line = str(source.marked)
            place = {"file": from_workspace(source.file), "line": line} | place
        properties = ",".join(f"{name}={_property(text)}" for name, text in place.items())
        yield f"::{LEVEL[verdict.outcome]} {properties}::{_data(_message(verdict))}"


def could_not_judge(sentence: str, targets: Iterable[str] = ()) -> str:
    """Return the workflow command for a run that came to no verdict, at the target's file."""
    files = (target.rpartition(":")[0] or target for target in targets)
    place = next((f"file={_property(from_workspace(each))}," for each in files
                  if Path(each).is_file()), "")  # fmt: skip
    return f"::error {place}title=mha-parity::{_data(sentence)}"


def _message(verdict: Verdict) -> str:
    lines = [first_line(verdict)]
    lines += [f"remedy: {each.remedy}" for each in verdict.diagnosis[:1] if each.remedy]
    lines += [f"look at: {each}" for each in wording.suspect_lines(verdict)]
    lines += [f"replay: {each.replay}" for each in wording.failures_in_full(verdict)[:1]]
    return "\n".join(lines)


def from_workspace(file: str) -> str:
    """Return a path as GitHub knows it: from the workspace on, with forward slashes."""
    path, root = Path(file).resolve(), Path(os.environ.get(WORKSPACE) or Path.cwd()).resolve()
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
