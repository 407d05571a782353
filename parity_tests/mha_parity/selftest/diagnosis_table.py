"""Count how the diagnosis settled wrong attentions that were written without its catalogue.

``data/diagnosis.jsonl`` has a line for each: what is wrong, what the diagnosis said first, and how
that was settled against the source. ``python -m mha_parity.selftest.diagnosis_table`` writes the
tables of the documentation from it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mha_parity.selftest.provenance import with_origin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DATA = Path(__file__).parent / "data"
SETTLED = DATA / "diagnosis.jsonl"
PAGE = DATA / "diagnosis.md"
GROUPS = (
    "formula", "approximation", "mask", "precision", "size", "state", "gradient", "weights",
    "crash",
)  # fmt: skip
FOUND = ("named", "described")
HALVES = {
    "held out": "Held out: judged once, and read only then",
    "development": "Development: read while the diagnosis was worked on",
}
# How each set was judged, in the order of `batch`.
SETS = (
    "150 cases, without shrinking",
    "150 cases, in process",
    "150 cases",
    "500 cases",
    "500 cases (development: 150, in process); written with part of the catalogue in view",
    "500 cases",
    "500 cases",
    "500 cases",
    "500 cases",
    "500 cases",
    "500 cases",
    "500 cases",
    "500 cases, on a loaded machine",
    "500 cases",
    "500 cases",
    "500 cases, on a loaded machine",
    "500 cases, on a loaded machine",
    "500 cases, on a loaded machine",
    "500 cases, on a loaded machine",
    "500 cases, on a loaded machine",
    "500 cases, on a loaded machine",
    "500 cases, on a loaded machine",
    "500 cases, on a loaded machine",
    "500 cases, on a loaded machine",
    "500 cases, on a loaded machine",
    "500 cases, on a loaded machine",
    "up to 500 cases, ended at 40 failures",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
    "up to 500 cases, ended at 40 failures, on a loaded machine",
)
COLUMNS = "| attentions | red | named or described | vague | misleading | found after mending |"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledDiagnosis:
    """One wrong attention: what it does, what was said of it, and how that was settled.

    ``verdict`` is *named* (the catalogue's name), *described* (the line would be found by what is
    measured), *vague*, *misleading* or *not red* (no case fails: nothing is diagnosed). ``later``
    is the verdict after what a held-out miss taught, where that is another. ``batch`` is the place
    of its set in ``SETS``.
    """

    id: str
    half: str
    group: str
    bug: str
    verdict: str
    diagnosis: str
    settled: str
    later: str = ""
    batch: int = 0


def read_settled() -> list[SettledDiagnosis]:
    """Return the lines of the data file."""
    lines = SETTLED.read_text(encoding="utf-8").splitlines()
    return [SettledDiagnosis(**json.loads(line)) for line in lines]


def diagnosis_tables(settled: Sequence[SettledDiagnosis]) -> str:
    """Return as Markdown: each half by set and by group, then what was not found."""
    lines: list[str] = []
    for half, title in HALVES.items():
        lines += [f"## {title}", "", *_half([each for each in settled if each.half == half], half)]
    missed = [each for each in settled if each.half == "held out" and each.verdict not in FOUND]
    open_still = [each for each in missed if each.later not in FOUND]
    mended = [each for each in missed if each.later in FOUND]
    lines += ["## Held out and not found", "", *_listed(open_still), ""]
    lines += ["## Held out and found after mending", "", *_listed(mended), ""]
    seen = [e for e in settled if e.half == "development" and e.verdict not in FOUND]
    lines += ["## Development and not found", "", *_listed(seen), ""]
    return "\n".join(lines)


def share_found(settled: Sequence[SettledDiagnosis], half: str) -> tuple[int, int]:
    """Return how many of a half are named or described, and how many are red."""
    red = [each for each in settled if each.half == half and each.verdict != "not red"]
    return sum(each.verdict in FOUND for each in red), len(red)


def _half(own: Sequence[SettledDiagnosis], half: str) -> Iterator[str]:
    found, red = share_found(own, half)
    yield from (f"{found} of {red} red ones are named or described.", "")
    yield from (f"| set | judged in {COLUMNS}", f"|--:|---{'|--:' * 6}|")
    for number, judged_in in enumerate(SETS):
        members = [each for each in own if each.batch == number]
        if members:
            yield f"| {number + 1} | {judged_in} {_row(members)}"
    yield from (f"| all |  {_row(own)}", "")
    yield from (f"| group {COLUMNS}", f"|---{'|--:' * 6}|")
    for group in GROUPS:
        members = [each for each in own if each.group == group]
        if members:
            yield f"| {group} {_row(members)}"
    yield ""


def _listed(missed: Sequence[SettledDiagnosis]) -> Iterator[str]:
    yield "| not found | what is wrong | first verdict | now | why |"
    yield "|---|---|---|---|---|"
    yield from (f"| {e.id} | {e.bug} | {e.verdict} | {e.later} | {e.settled} |" for e in missed)


def _row(members: Sequence[SettledDiagnosis]) -> str:
    verdicts = [each.verdict for each in members]
    mended = sum(each.verdict not in FOUND and each.later in FOUND for each in members)
    counts = (
        len(members), sum(v != "not red" for v in verdicts), sum(v in FOUND for v in verdicts),
        verdicts.count("vague"), verdicts.count("misleading"), mended,
    )  # fmt: skip
    return f"| {' | '.join(map(str, counts))} |"


def main() -> None:
    """Write the tables."""
    command = "python -m mha_parity.selftest.diagnosis_table"
    PAGE.write_text(with_origin(diagnosis_tables(read_settled()), command), encoding="utf-8")


if __name__ == "__main__":
    main()
