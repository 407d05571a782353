"""Judge attentions of public repositories as they stand, and compare with their settled truths.

The manifest names repository, commit, path and name; the sources are not part of this project. Put
them at SOURCES/<owner>__<repository>/<path> at that commit, then run
``python -m mha_parity.selftest.corpus_run SOURCES``. Each entry is judged by the command, without
options, in a process of its own. The truth of each was settled by hand against torch: ``right``
(equal to projections, torch.nn.functional.scaled_dot_product_attention and output projection, with
the masks that it documents), ``wrong``, or ``no counterpart`` (what torch's layer cannot express).

The development set was looked at while targets were made recognisable. Each held-out set
was judged once, from the second on with its truths written down before: its verdicts are those of
this first run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from mha_parity.report.progress import progress
from mha_parity.selftest.provenance import with_origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MANIFEST = Path(__file__).parent / "data" / "corpus.jsonl"
TIMEOUT = 180.0  # seconds for one entry, imports of torch included
WORKERS = 2
TRUTHS = ("right", "wrong", "no counterpart")
# What the exit status of `mha-parity check` says of a target.
STATUS = {0: "pass", 1: "fail", 2: "refused", 3: "inconclusive"}
OTHER = "no verdict"
EXPECTED = {"right": "pass", "wrong": "fail", "no counterpart": "refused"}
# Verdicts that contradict a truth: false alarms, and wrong attentions let through.
CONTRADICTIONS = frozenset({("right", "fail"), ("wrong", "pass"), ("no counterpart", "pass")})
# The columns of a set: which share of a truth has which verdict.
SETTLED_AS = {
    "right ones that pass": ("right", "pass"),
    "right ones that fail": ("right", "fail"),
    "wrong ones that fail": ("wrong", "fail"),
    "wrong ones that pass": ("wrong", "pass"),
    "no counterpart, refused": ("no counterpart", "refused"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusEntry:
    """One attention of a public repository.

    ``reason`` says what is wrong or without counterpart, ``lacks`` names libraries that its file
    imports and this project does not need, ``verdict`` is the one that was last published, ``miss``
    why it is another than the truth asks for, ``held_out`` which held-out set it belongs to (0: the
    development set), and ``later`` the verdict of a run after what the published one showed was
    mended, where it is another.
    """

    repository: str
    commit: str
    path: str
    name: str
    truth: str
    reason: str = ""
    lacks: tuple[str, ...] = ()
    verdict: str = ""
    miss: str = ""
    held_out: int = 0
    later: str = ""

    def file(self, sources: Path) -> Path:
        """Return where the source stands."""
        return sources / self.repository.replace("/", "__") / self.path

    def target(self, sources: Path) -> str:
        """Return the target as the command takes it."""
        return f"{self.file(sources)}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryVerdict:
    """Output of the command for one entry: the verdict in a word, and its sentence."""

    entry: CorpusEntry
    verdict: str
    sentence: str

    @property
    def contradicts(self) -> bool:
        """Whether the verdict contradicts the truth."""
        return (self.entry.truth, self.verdict) in CONTRADICTIONS


def read_manifest(path: Path = MANIFEST) -> list[CorpusEntry]:
    """Return the entries of a manifest, one JSON object a line."""
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line)
    return [CorpusEntry(**{**row, "lacks": tuple(row.get("lacks", ()))}) for row in rows]


def judge_entry(entry: CorpusEntry, sources: Path, options: Sequence[str] = ()) -> EntryVerdict:
    """Judge one entry by the command in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "verdict.json"
        command = [sys.executable, "-m", "mha_parity", "check", entry.target(sources)]
        command += ["--json", str(written), *options]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT, check=False, cwd=folder
            )
        except subprocess.TimeoutExpired:
            return EntryVerdict(entry=entry, verdict=OTHER, sentence=f"no end within {TIMEOUT:g} s")
        found = json.loads(written.read_text(encoding="utf-8")) if written.exists() else {}
    verdict = STATUS.get(done.returncode, OTHER)
    if verdict != "refused" and not found:  # an exception of the command itself ends with 1 too
        verdict = OTHER
    return EntryVerdict(entry=entry, verdict=verdict, sentence=_sentence(found, done.stderr))


def _sentence(found: Mapping[str, Any], stderr: str) -> str:
    """Return the sentence of the verdict, or the last line that the command wrote instead."""
    first = found["targets"][0] if found.get("targets") else found
    lines = stderr.strip().splitlines()
    return str(first.get("sentence") or (lines[-1] if lines else ""))


def judge_all(
    entries: Sequence[CorpusEntry], sources: Path, options: Sequence[str], console: Console
) -> list[EntryVerdict]:
    """Judge every entry whose source is at hand."""
    at_hand = [
        entry for entry in entries if Path(entry.target(sources).rpartition(":")[0]).exists()
    ]
    outcomes = []
    with (
        progress(console, "corpus", unit="attentions") as tick,
        ThreadPoolExecutor(WORKERS) as pool,
    ):
        judged = pool.map(lambda entry: judge_entry(entry, sources, options), at_hand)
        for done, outcome in enumerate(judged, start=1):
            outcomes.append(outcome)
            tick(done, len(at_hand))
    return outcomes


def corpus_markdown(outcomes: Sequence[EntryVerdict]) -> Iterator[str]:
    """Yield Markdown: counts of verdicts by truth, then every verdict that contradicts one."""
    yield from _counted(outcomes)
    missed = [each for each in outcomes if each.contradicts]
    if missed:
        yield ""
        yield from _listed(missed)


def _counted(outcomes: Sequence[EntryVerdict]) -> Iterator[str]:
    verdicts = (*STATUS.values(), OTHER)
    counts = Counter((each.entry.truth, each.verdict) for each in outcomes)
    yield f"| truth | entries | {' | '.join(verdicts)} |"
    yield f"|---|--:{'|--:' * len(verdicts)}|"
    for truth in TRUTHS:
        row = [counts[truth, verdict] for verdict in verdicts]
        yield f"| {truth} | {sum(row)} | {' | '.join(map(str, row))} |"


def _listed(outcomes: Sequence[EntryVerdict]) -> Iterator[str]:
    yield from ("| repository | name | truth | verdict | why |", "|---|---|---|---|---|")
    for each in outcomes:
        entry = each.entry
        name = f"`{entry.path}:{entry.name}`"
        why = each.sentence.replace("|", "\\|")
        yield f"| {entry.repository} | {name} | {entry.truth} | {each.verdict} | {why} |"


def corpus_page(entries: Sequence[CorpusEntry]) -> Iterator[str]:
    """Yield Markdown: verdicts now and when first judged, each set in a line, and every miss.

    A wrong one that is refused or inconclusive was not let through, and is no miss.
    """
    latest = [replace(each, verdict=each.later or each.verdict) for each in entries]
    missed = [each for each in latest if is_miss(each)]
    mended = [e for e, now in zip(entries, latest, strict=True) if is_miss(e) and not is_miss(now)]
    yield from (f"{_size(entries)}.", "", "## Verdicts now", "")
    yield from _counted(_published(latest))
    yield from ("", "## Held-out sets when first judged", "")
    yield from _counted(_published(each for each in entries if each.held_out))
    yield from ("", "## Each set when first judged", "", *_by_set(entries))
    if missed:
        yield from ("", "## Known misses", "", *_listed(_published(missed)))
    if mended:
        yield from ("", "## Missed at first, judged rightly since", "")
        yield from _listed(_published(mended))
    yield ""


def _published(entries: Iterable[CorpusEntry]) -> list[EntryVerdict]:
    """Return the verdicts that the manifest has, each miss with its cause."""
    return [EntryVerdict(entry=each, verdict=each.verdict, sentence=each.miss) for each in entries]


def _by_set(entries: Sequence[CorpusEntry]) -> Iterator[str]:
    """Yield a line for each set: how many of each truth have the verdict that they should have."""
    yield f"| set | attentions | repositories | {' | '.join(SETTLED_AS)} |"
    yield f"|---|--:|--:{'|--:' * len(SETTLED_AS)}|"
    for number in sorted({each.held_out for each in entries}):
        own = [each for each in entries if each.held_out == number]
        found = Counter((each.truth, each.verdict) for each in own)
        of_truth = Counter(each.truth for each in own)
        counts = [f"{found[pair]} of {of_truth[pair[0]]}" for pair in SETTLED_AS.values()]
        name = f"held out {number}" if number else "development"
        repositories = len({each.repository for each in own})
        yield f"| {name} | {len(own)} | {repositories} | {' | '.join(counts)} |"


def _size(entries: Sequence[CorpusEntry]) -> str:
    repositories = {each.repository for each in entries}
    return f"{len(entries)} attentions of {len(repositories)} public repositories"


def is_miss(entry: CorpusEntry) -> bool:
    """Return whether a published verdict is another than the truth asks for."""
    stopped = entry.truth == "wrong" and entry.verdict in {"refused", "inconclusive"}
    return entry.verdict != EXPECTED[entry.truth] and not stopped


def changed_verdicts(outcomes: Sequence[EntryVerdict]) -> Iterator[str]:
    """Yield a line for each verdict that differs from the published one."""
    for each in outcomes:
        entry = each.entry
        if entry.verdict and each.verdict != entry.verdict:
            name = f"{entry.repository} {entry.path}:{entry.name}"
            yield f"{name} was {entry.verdict}, is {each.verdict}: {each.sentence}"


def publish(outcomes: Sequence[EntryVerdict], manifest: Path) -> None:
    """Write the verdicts into the manifest, and the page of them next to it."""
    found = {replace(each.entry, verdict=""): each.verdict for each in outcomes}
    entries = [
        replace(entry, verdict=found.get(replace(entry, verdict=""), entry.verdict))
        for entry in read_manifest(manifest)
    ]
    rows = [{k: v for k, v in asdict(entry).items() if v} for entry in entries]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    manifest.write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = with_origin("\n".join(corpus_page(entries)), "make corpus ARGS='SOURCES --publish'")
    manifest.with_suffix(".md").write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the corpus and print the table; 0 where no verdict contradicts a truth, else 1."""
    parser = argparse.ArgumentParser(prog="mha_parity.selftest.corpus_run", description=__doc__)
    parser.add_argument("sources", type=Path, metavar="SOURCES", help="folder of the repositories")
    parser.add_argument("--manifest", type=Path, default=MANIFEST, help="which entries")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each verdict, a line each")
    parser.add_argument("--publish", action="store_true", help="write verdicts into the manifest")
    parser.add_argument("--options", default="", help="more options for `mha-parity check`")
    asked = parser.parse_args(arguments)
    console = Console()
    outcomes = judge_all(
        read_manifest(asked.manifest), asked.sources.resolve(), asked.options.split(), console
    )
    if asked.json:
        rows = (json.dumps(asdict(each)) for each in outcomes)
        asked.json.write_text("\n".join(rows) + "\n", encoding="utf-8")
    if asked.publish:
        publish(outcomes, asked.manifest)
    for line in (*corpus_markdown(outcomes), *changed_verdicts(outcomes)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return int(any(each.contradicts for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
