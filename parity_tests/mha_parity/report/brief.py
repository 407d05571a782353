"""The verdict in at most 25 lines, for an assertion: sentence, bug, place, case, replay."""

from __future__ import annotations

import math
import re
import shutil
import textwrap
from typing import TYPE_CHECKING

from mha_parity.report import wording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.verdict import Diagnosis, Failure, Verdict

LINES = 25
MORE = "(the rest: pytest -v, or the `verdict` of the ParityError)"
DETAIL = 5  # lines of what a check says
NAMES = 10  # the column of names
INDENT = 8  # columns that pytest puts before a line of a message
BY_CHECK = "the check: "  # how the evidence of what a check says begins
_CONDITION = re.compile(r"((?:with|wherever) [^:]+): (.+)", re.DOTALL)
MIN_WIDTH = 60  # columns of a line: in a narrower window lines break anyway


def first_line(verdict: Verdict) -> str:
    """Return the verdict's sentence, and the bug where there is a diagnosis."""
    if not verdict.diagnosis:
        return verdict.sentence
    first = verdict.diagnosis[0]
    return f"{verdict.sentence} {wording.certainty(first).capitalize()}: {first.title}"


def short_cause(verdict: Verdict) -> str:
    """Return the bug and the count, or what else is found, for a line that a terminal cuts."""
    said = verdict.sentence.removeprefix(f"Parity does not hold: {verdict.target} ")
    if not verdict.diagnosis:
        return said
    first = verdict.diagnosis[0]
    return f"{_finding_first(first)}{f' [{first.bug}]' if first.bug else ''}: {said}"


def _finding_first(diagnosis: Diagnosis) -> str:
    """Return the title with where it is seen behind it, and with the check that it is said by."""
    check = diagnosis.evidence.partition(BY_CHECK)[2]
    if check and not diagnosis.bug:
        return f"{check}: {diagnosis.title}"
    conditioned = _CONDITION.fullmatch(diagnosis.title)
    return f"{conditioned[2]} ({conditioned[1]})" if conditioned else diagnosis.title


def brief(verdict: Verdict) -> str:
    """Return the first line and at most 24 more: the bug, the first failure, the command to run.

    They fit the window behind what pytest puts before them; ids and commands stay whole.
    """
    width = max(shutil.get_terminal_size().columns - INDENT, MIN_WIDTH)
    lines = [line for name, text in _rows(verdict) for line in _row(name, text, width)]
    if len(lines) >= LINES:
        lines = [*lines[: LINES - 2], *_row("", MORE, width)]
    return "\n".join([first_line(verdict), *lines])


def _rows(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield names and what each says."""
    for diagnosis in verdict.diagnosis[:1]:
        yield from _diagnosis(diagnosis)
        yield from (("look at", each) for each in wording.suspect_lines(verdict))
    full = wording.failures_in_full(verdict)
    for failure in full[:1]:
        yield from _failure(failure)
    others = [each.check_result.check for each in wording.failures_in_brief(verdict, full[:1])]
    if others:
        yield "also fails", ", ".join(dict.fromkeys(others))
    if not verdict.failed:
        for row in wording.untested(verdict)[: LINES // 2]:
            yield "untested", f"{row.axis}={row.value}: {row.reason}"
    for note in verdict.notes[:DETAIL]:
        yield "note", note


def _diagnosis(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    if diagnosis.bug:  # what was measured stands in the first line
        yield wording.certainty(diagnosis), f"{diagnosis.title}  [{diagnosis.bug}]"
    for name, text in (
        ("explains", wording.explains(diagnosis)),
        ("evidence", diagnosis.evidence),
        ("remedy", diagnosis.remedy),
    ):
        if text:
            yield name, text


def _failure(failure: Failure) -> Iterator[tuple[str, str]]:
    result = failure.check_result
    yield "fails", f"{result.check}: {result.severity.value}"
    for number, line in enumerate(wording.shorten_output(result.detail, DETAIL).splitlines()):
        yield "" if number else "because", line
    if result.where is not None:
        if str(result.where) not in result.detail:
            yield "where", str(result.where)
        if math.isfinite(result.error):
            yield "error", wording.error_words(result)
    yield "case", failure.case.id
    yield "replay", failure.replay


def _row(name: str, text: str, width: int) -> Iterator[str]:
    """Yield the lines of one name; what a user copies, and lines of code, are not broken."""
    begin = f" {name:<{NAMES}}  "
    if name in {"case", "replay", "look at"} or text.startswith(" "):
        yield begin + text
        return
    yield from textwrap.wrap(
        text,
        width,
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_long_words=False,
        break_on_hyphens=False,
    )
