"""The verdict in at most 25 lines, for an assertion: sentence, bug, place, case, replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.report import wording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.verdict import Diagnosis, Failure, Verdict

LINES = 25
DETAIL = 5  # lines of what a check says
NAMES = 10  # the column of names


def first_line(verdict: Verdict) -> str:
    """Return the verdict's sentence, and the bug where there is a diagnosis."""
    if not verdict.diagnosis:
        return verdict.sentence
    first = verdict.diagnosis[0]
    return f"{verdict.sentence} {wording.certainty(first).capitalize()}: {first.title}"


def brief(verdict: Verdict) -> str:
    """Return the first line and at most 24 more: the bug, the first failure, the command to run."""
    lines = [*_rows(verdict)]
    if len(lines) >= LINES:
        lines = [*lines[: LINES - 2], _row("", "(more in the full report)")]
    return "\n".join([first_line(verdict), *lines])


def _rows(verdict: Verdict) -> Iterator[str]:
    for diagnosis in verdict.diagnosis[:1]:
        yield from _diagnosis(diagnosis)
    full = wording.failures_in_full(verdict)
    for failure in full[:1]:
        yield from _failure(failure)
    others = [each.check_result.check for each in verdict.failures if each not in full[:1]]
    if others:
        yield _row("also fails", ", ".join(dict.fromkeys(others)))
    if not verdict.failed:
        for row in wording.untested(verdict)[: LINES // 2]:
            yield _row("untested", f"{row.axis}={row.value}: {row.note}")
    for note in verdict.notes[:DETAIL]:
        yield _row("note", note)


def _diagnosis(diagnosis: Diagnosis) -> Iterator[str]:
    name = f"  [{diagnosis.bug}]" if diagnosis.bug else ""
    yield _row(wording.certainty(diagnosis), f"{diagnosis.title}{name}")
    for name, text in (
        ("explains", wording.explains(diagnosis)),
        ("evidence", diagnosis.evidence),
        ("remedy", diagnosis.remedy),
    ):
        if text:
            yield _row(name, text)


def _failure(failure: Failure) -> Iterator[str]:
    result = failure.check_result
    yield _row("fails", f"{result.check}: {result.severity.value}")
    for number, line in enumerate(wording.formatted(result.detail, DETAIL).splitlines()):
        yield _row("" if number else "because", line)
    if result.where is not None:
        if str(result.where) not in result.detail:
            yield _row("where", str(result.where))
        yield _row("error", wording.error(result))
    yield _row("case", failure.case.id)
    yield _row("replay", failure.replay)


def _row(name: str, text: str) -> str:
    return f" {name:<{NAMES}}  {text}"
