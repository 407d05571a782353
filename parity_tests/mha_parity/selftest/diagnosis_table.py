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

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DATA = Path(__file__).parent / "data"
SETTLED = DATA / "diagnosis.jsonl"
PAGE = DATA / "diagnosis.md"
GROUPS = (
    "formula", "approximation", "mask", "precision", "size", "state", "gradient", "weights",
    "crash",
)  # fmt: skip
VERDICTS = ("named", "described", "vague", "misleading", "not red")
FOUND = ("named", "described")
HALVES = {
    "development": "Development half: seen while the experiments were written",
    "held out": "Held-out half: judged once, and read only then",
}
BATCHES = (
    "First attentions",
    "Further attentions, written after the first were published",
    "A third set, judged in a process of its own",
    "A fourth set, judged as `mha-parity check FILE:NAME` does without options",
    "A fifth set, judged as the fourth, written with part of the catalogue in view",
    "A sixth set, judged as the fourth, all of it held out",
    "A seventh set, judged as the sixth",
    "An eighth set, judged as the sixth",
    "A ninth set, judged as the sixth",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledDiagnosis:
    """One wrong attention: what it does, what was said of it, and how that was settled.

    ``verdict`` is *named* (the catalogue's name), *described* (the line would be found by what is
    measured), *vague*, *misleading* or *not red* (no case fails: nothing is diagnosed). ``later``
    is the verdict after what a held-out miss taught, where that is another. ``batch`` is its place
    in ``BATCHES``.
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


def read_settled(path: Path = SETTLED) -> list[SettledDiagnosis]:
    """Return the lines of the data file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [SettledDiagnosis(**json.loads(line)) for line in lines]


def tables(settled: Sequence[SettledDiagnosis]) -> str:
    """Return the tables of both halves of each batch, and what was missed, as Markdown."""
    lines = []
    for number, title in enumerate(BATCHES):
        own = [each for each in settled if each.batch == number]
        halves = [half for half in HALVES if any(each.half == half for each in own)]
        lines += [f"## {title}", "", *(line for half in halves for line in _half(own, half))]
    return "\n".join(lines)


def share_found(settled: Sequence[SettledDiagnosis], half: str) -> tuple[int, int]:
    """Return how many of a half are named or described, and how many are red."""
    red = [each for each in settled if each.half == half and each.verdict != "not red"]
    return sum(each.verdict in FOUND for each in red), len(red)


def _half(settled: Sequence[SettledDiagnosis], half: str) -> Iterator[str]:
    own = [each for each in settled if each.half == half]
    found, red = share_found(settled, half)
    yield from (f"### {HALVES[half]}", "", f"{found} of {red} red ones are named or described.", "")
    yield "| group | attentions | red | named or described | vague | misleading |"
    yield "|---|--:|--:|--:|--:|--:|"
    for group in GROUPS:
        members = [each for each in own if each.group == group]
        if members:
            yield _row(group, members)
    yield from (_row("all", own), "")
    missed = [each for each in own if each.verdict not in FOUND]
    if missed:
        yield "| not found | what is wrong | verdict | after mending | why |"
        yield "|---|---|---|---|---|"
        yield from (f"| {e.id} | {e.bug} | {e.verdict} | {e.later} | {e.settled} |" for e in missed)
        yield ""


def _row(name: str, members: Sequence[SettledDiagnosis]) -> str:
    verdicts = [each.verdict for each in members]
    counts = (
        len(members), sum(v != "not red" for v in verdicts), sum(v in FOUND for v in verdicts),
        verdicts.count("vague"), verdicts.count("misleading"),
    )  # fmt: skip
    return f"| {name} | {' | '.join(map(str, counts))} |"


def main() -> None:
    """Write the tables."""
    PAGE.write_text(tables(read_settled()), encoding="utf-8")


if __name__ == "__main__":
    main()
