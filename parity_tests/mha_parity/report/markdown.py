"""The verdict as Markdown: for the summary of a CI job, a pull request or an issue."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mha_parity.report import accuracy_table, ascii_maps, correlations, wording
from mha_parity.report.html_page import heads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mha_parity.core.report_arrays import WeightsPicture
    from mha_parity.core.verdict import Diagnosis, Failure, FeatureRow, Refusal, Verdict

LINES = 12  # of what a check says
WIDTH = 78  # characters of a picture
SPECIAL = re.compile(r"([\\`*_\[\]<|~&])")
ENCLOSED = re.compile(r"`([^`]+)`")


def document(verdicts: Sequence[Verdict], refused: Sequence[Refusal] = ()) -> str:
    """Return the verdicts one below the other, then what was refused."""
    parts = ["\n".join(_verdict(verdict)) for verdict in verdicts]
    parts += [f"## ! {escaped(r.target)}: refused\n\n{escaped(r.sentence)}" for r in refused]
    return "\n\n".join(parts) + "\n"


def _verdict(verdict: Verdict) -> Iterator[str]:
    sign = wording.SIGN[verdict.outcome.value]
    yield f"## {sign} {escaped(verdict.sentence)}"
    yield from ("", escaped(wording.environment_line(verdict)))
    for number, diagnosis in enumerate(verdict.diagnosis):
        lines = (
            [] if number else [("look at", code(each)) for each in wording.suspect_lines(verdict)]
        )
        yield from ("", *_rows([*_diagnosis(diagnosis), *lines]))
    full = wording.failures_in_full(verdict)
    for failure in full:
        yield from ("", *_failure(failure))
    others = [each.check_result.check for each in wording.failures_in_brief(verdict, full)]
    if others:
        yield from ("", f"Also fails: {escaped(', '.join(dict.fromkeys(others)))}.")
    if verdict.pictures:
        yield from ("", *_picture(verdict.pictures[0]))
    yield from ("", *_rows(_judged(verdict)))
    yield from ("", *_features(verdict))


def _diagnosis(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    name = f" {code(diagnosis.bug)}" if diagnosis.bug else ""
    yield wording.certainty(diagnosis), f"**{escaped(diagnosis.title)}**{name}"
    yield "explains", escaped(wording.explains(diagnosis))
    yield "evidence", escaped(diagnosis.evidence)
    yield "remedy", escaped(diagnosis.remedy)
    yield wording.ALIASES, escaped(", ".join(diagnosis.aliases))
    named = wording.source_links(diagnosis.seen_in)
    yield "seen in", ", ".join(f"[{escaped(a)}]({url})" if url else escaped(a) for a, url in named)


def _failure(failure: Failure) -> Iterator[str]:
    result = failure.check_result
    yield f"### {escaped(result.check)}: {result.severity.value}"
    if result.detail:
        yield from ("", *_block(wording.shorten_output(result.detail, LINES)))
    rows = [("error", escaped(wording.error_words(result)))] if result.where is not None else []
    yield from ("", *_rows([*rows, ("case", code(failure.case.id)), ("replay", "")]))
    yield from ("", *_block(failure.replay))


def _picture(picture: WeightsPicture) -> Iterator[str]:
    """Yield the weights of the head with the largest error, next to torch's."""
    head = heads(picture)[0]
    which = "averaged over heads" if picture.averaged else f"head {head}"
    yield f"Attention weights, {which}, of {code(picture.case.id)}:"
    yield ""
    yield from _block("\n".join(ascii_maps.weight_lines(picture, head, WIDTH)))


def _judged(verdict: Verdict) -> Iterator[tuple[str, str]]:
    yield "judged", escaped(wording.judged_counts(verdict))
    yield "inconclusive", escaped(wording.inconclusive_reasons(verdict))
    if verdict.accuracy:
        yield "accuracy", escaped(accuracy_table.accuracy_sentence(verdict))
    if wording.untested(verdict):
        yield "untested", escaped(wording.untested_sentence(verdict))
    for status, names in wording.unpassed_parameters(verdict):
        yield status, escaped(", ".join(names))
    yield "not offered", escaped(" · ".join(wording.not_offered(verdict, whole_reasons=False)))
    yield "left out", escaped(" · ".join(wording.left_out(verdict)))
    yield "not drawn", escaped(wording.not_drawn(verdict))
    if wording.gradients_not_asked(verdict):
        yield "not asked", escaped(wording.GRADIENTS_NOT_ASKED)
    for note in verdict.notes:
        yield "note", escaped(note)


def _features(verdict: Verdict) -> Iterator[str]:
    """Yield the axes as a folded table, those on which failures concentrate first."""
    varied = [axis for axis in correlations.by_concentration(verdict) if axis.varies]
    if not varied:
        return
    yield f"<details><summary>Every feature ({len(varied)} axes)</summary>"
    yield from ("", "| | cases |", "|---|---|")
    for axis in varied:
        values = ", ".join(_feature(row) for row in axis.offered)
        yield f"| {axis.title} | {values} |"
    yield from ("", "</details>")


def _feature(row: FeatureRow) -> str:
    count = f"{row.failed} of {row.cases}" if row.failed else f"{row.cases}"
    return f"{wording.SIGN[row.status]} {escaped(wording.feature_words(row))} {count}"


def _rows(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a table of two columns without a header; rows without a text are left out."""
    yield from ("| | |", "|---|---|")
    yield from (f"| {name} | {text} |" for name, text in pairs if text)


def _block(text: str) -> Iterator[str]:
    """Yield a block of code whose fence the text does not contain."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    yield from (f"{fence}text", *text.splitlines(), fence)


def escaped(text: str) -> str:
    """Return text that Markdown shows as it is, in one line; what backticks enclose, as code."""
    parts = ENCLOSED.split(" ".join(text.split()))
    parts[::2] = (SPECIAL.sub(r"\\\1", part) for part in parts[::2])
    parts[1::2] = map(code, parts[1::2])
    return "".join(parts)


def code(text: str) -> str:
    """Return text as code inside a line or a cell of a table."""
    shown = " ".join(text.split()).replace("|", "\\|")
    fence = "``" if "`" in shown else "`"
    return f"{fence}{shown}{fence}"
