"""Judge public attentions that are right, with one change each: what passes is let through.

``python -m mha_parity.selftest.corpus_mutants SOURCES --seed N`` takes each right entry of the
corpus that passes and whose source is at hand, as ``corpus_run`` has them, changes one place of it
(``source_changes``), and judges it by the command without options. What fails, or is refused, was
not let through. What passes is settled by hand: a change that no call can show is ``equivalent``,
one of a part that the verdict says was not tried is ``said``, and any other was ``let through``.
The published rows have kind and line of each change and no text of the source.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from mha_parity.report.progress import progress
from mha_parity.selftest.corpus_run import MANIFEST as CORPUS
from mha_parity.selftest.corpus_run import WORKERS, CorpusEntry, judge_entry, read_manifest
from mha_parity.selftest.provenance import with_origin
from mha_parity.selftest.source_changes import SourceChange, draw_change

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MANIFEST = CORPUS.with_name("corpus_mutants.jsonl")
OPTIONS = ("--fail-fast",)
VERDICTS = ("fail", "refused", "inconclusive", "pass", "no verdict")
SETTLED = ("equivalent", "said", "let through")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedEntry:
    """One changed attention: its change, the verdict on it, and what a pass was settled to be.

    ``later`` is the verdict of a run after what the published one showed was mended.
    """

    seed: int
    repository: str
    path: str
    name: str
    kind: str
    line: int
    verdict: str
    settled: str = ""
    reason: str = ""
    later: str = ""


def draw_changes(sources: Path, seed: int) -> Iterator[tuple[CorpusEntry, SourceChange]]:
    """Yield each entry that can be changed, with a change of its source."""
    for entry in read_manifest():
        passes = (entry.later or entry.verdict) == "pass"
        file = entry.file(sources)
        if entry.truth != "right" or not passes or file.suffix != ".py" or not file.exists():
            continue
        source = file.read_text(encoding="utf-8", errors="replace")
        change = draw_change(source, entry.name, f"{seed} {entry.repository} {entry.name}")
        if change is not None:
            yield entry, change


def judge_changed(
    entry: CorpusEntry, change: SourceChange, sources: Path, seed: int
) -> tuple[ChangedEntry, str]:
    """Return an entry as it is judged with a changed source, and the sentence of its verdict."""
    folder = entry.repository.replace("/", "__")
    with tempfile.TemporaryDirectory() as copied:
        shutil.copytree(sources / folder, Path(copied) / folder)
        entry.file(Path(copied)).write_text(change.source, encoding="utf-8")
        found = judge_entry(entry, Path(copied), OPTIONS)
    row = ChangedEntry(
        seed=seed, repository=entry.repository, path=entry.path, name=entry.name,
        kind=change.kind, line=change.line, verdict=found.verdict,
    )  # fmt: skip
    return row, found.sentence


def read_rows(path: Path = MANIFEST) -> list[ChangedEntry]:
    """Return the published rows, one JSON object a line."""
    return [ChangedEntry(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def page(rows: Sequence[ChangedEntry]) -> Iterator[str]:
    """Yield Markdown: verdicts by seed, what passed as it was settled, and what was let through."""
    seeds = sorted({row.seed for row in rows})
    yield f"| seed | changed | {' | '.join((*VERDICTS, *SETTLED))} | let through now |"
    yield f"|--:|--:{'|--:' * (len(VERDICTS) + len(SETTLED) + 1)}|"
    for seed in seeds:
        own = [row for row in rows if row.seed == seed]
        verdicts, settled = Counter(r.verdict for r in own), Counter(r.settled for r in own)
        now = sum(
            row.settled == SETTLED[-1] and (row.later or row.verdict) == "pass" for row in own
        )
        counts = (*(verdicts[each] for each in VERDICTS), *(settled[each] for each in SETTLED), now)
        yield f"| {seed} | {len(own)} | {' | '.join(map(str, counts))} |"
    missed = [row for row in rows if row.settled == SETTLED[-1]]
    if missed:
        yield from ("", "| repository | change | verdict | why |", "|---|---|---|---|")
    for row in missed:
        verdict = f"{row.verdict}, then {row.later}" if row.later else row.verdict
        place = f"{row.kind} in line {row.line} of `{row.path}:{row.name}`"
        yield f"| {row.repository} | {place} | {verdict} | {row.reason} |"
    yield ""


def publish_rows(rows: Sequence[ChangedEntry], path: Path = MANIFEST) -> None:
    """Write the rows of these seeds in place of the old ones, and the page next to them."""
    seeds = {row.seed for row in rows}
    kept = [row for row in read_rows(path) if row.seed not in seeds] if path.exists() else []
    whole = sorted([*kept, *rows], key=lambda row: (row.seed, row.repository.lower(), row.name))
    lines = (json.dumps({k: v for k, v in asdict(row).items() if v != ""}) for row in whole)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = "make corpus-mutants ARGS='SOURCES --seed N --publish'"
    path.with_suffix(".md").write_text(with_origin("\n".join(page(whole)), command), "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge changed attentions, and list what was not stopped; 0 where all were."""
    parser = argparse.ArgumentParser(prog="mha_parity.selftest.corpus_mutants", description=__doc__)
    parser.add_argument("sources", type=Path, metavar="SOURCES", help="folder of the repositories")
    parser.add_argument("--seed", type=int, default=1, help="which change of each")
    parser.add_argument("--publish", action="store_true", help="write the rows and their page")
    asked = parser.parse_args(arguments)
    console, sources = Console(), asked.sources.resolve()
    drawn = list(draw_changes(sources, asked.seed))
    rows: list[ChangedEntry] = []
    with (
        progress(console, "changed attentions", unit="attentions") as tick,
        ThreadPoolExecutor(WORKERS) as pool,
    ):
        judged = pool.map(lambda each: judge_changed(each[0], each[1], sources, asked.seed), drawn)
        for done, (row, sentence) in enumerate(judged, start=1):
            rows.append(row)
            tick(done, len(drawn))
            if row.verdict not in {"fail", "refused"}:
                place = f"{row.repository} {row.path}:{row.line} {row.name}, {row.kind}"
                console.print(f"{row.verdict}: {place}: {sentence}", markup=False, highlight=False)
    if asked.publish:
        publish_rows(rows)
    counts = Counter(row.verdict for row in rows)
    console.print(", ".join(f"{counts[each]} {each}" for each in VERDICTS if counts[each]))
    return int(any(row.verdict == "pass" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
