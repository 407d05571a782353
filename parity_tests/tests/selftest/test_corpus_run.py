"""The corpus is judged by the command, and a verdict that contradicts a truth is named."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mha_parity.selftest import corpus_run
from mha_parity.selftest.corpus_run import (
    EXPECTED,
    MANIFEST,
    CorpusEntry,
    EntryVerdict,
    changed_verdicts,
    corpus_markdown,
    corpus_page,
    is_miss,
    judge_entry,
    main,
    read_manifest,
)
from mha_parity.selftest.provenance import without_origin
from subject_checks import SUBJECTS

RIGHT = {"repository": "a/right", "commit": "0" * 40, "path": "projected.py", "name": "f"}
OPTIONS = "--options=--cases 40 --in-process"
WRONG = {"repository": "b/wrong", "commit": "0" * 40, "path": "wrong_scale.py", "name": "f"}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Return a folder of two repositories: one right attention, one wrong."""
    for entry in (RIGHT, WRONG):
        folder = tmp_path / entry["repository"].replace("/", "__")
        folder.mkdir()
        shutil.copy(SUBJECTS / entry["path"], folder)
    return tmp_path


def entry(row: dict[str, str], truth: str) -> CorpusEntry:
    """Return an entry of the given truth."""
    return CorpusEntry(
        repository=row["repository"],
        commit=row["commit"],
        path=row["path"],
        name=row["name"],
        truth=truth,
    )


def test_the_published_manifest_is_whole() -> None:
    """Every entry has a full commit and a known truth, and a wrong one says what is wrong."""
    entries = read_manifest()

    assert len(entries) >= 60
    assert len({each.repository for each in entries}) >= 40
    assert {40} == {len(each.commit) for each in entries}
    assert {"right", "wrong", "no counterpart"} == {each.truth for each in entries}
    assert all(each.reason for each in entries if each.truth == "wrong")
    assert len(entries) == len({(e.repository, e.path, e.name) for e in entries})


def test_every_entry_has_a_verdict_and_every_miss_its_cause() -> None:
    """The page follows from the manifest: verdicts of every set, and why one is not as expected."""
    entries = read_manifest()

    sets = {each.held_out for each in entries}
    assert len(sets) > 1
    assert {*range(len(sets))} == sets
    assert {each.verdict for each in entries} <= {*EXPECTED.values(), "inconclusive", "no verdict"}
    assert [] == [each.name for each in entries if is_miss(each) != bool(each.miss)]
    shown = MANIFEST.with_suffix(".md").read_text("utf-8")
    assert without_origin(shown) == "\n".join(corpus_page(entries)).rstrip()


def test_what_is_published_names_no_folder_of_a_machine() -> None:
    """Reasons that were noted where sources were run may: one did."""
    files = [each for each in MANIFEST.parent.iterdir() if each.suffix in {".jsonl", ".md"}]
    found = [
        (file.name, place)
        for file in files
        for place in re.findall(
            r"(?<![\w.~])/(?:tmp|home|root|work|Users)/\S+", file.read_text("utf-8")
        )
    ]
    assert (True, []) == (MANIFEST in files, found)


def test_a_wrong_one_that_is_stopped_is_no_miss_and_one_that_passes_is_listed() -> None:
    """A refusal stops a wrong attention; a pass stands on the page, with its cause."""
    stopped = replace(entry(WRONG, "wrong"), verdict="refused", held_out=1)
    passed = replace(stopped, verdict="pass", miss="a mask that is | never passed")

    assert [False, True] == [is_miss(each) for each in (stopped, passed)]
    line = "| b/wrong | `wrong_scale.py:f` | wrong | pass | a mask that is \\| never passed |"
    assert [False, True] == [line in corpus_page([each]) for each in (stopped, passed)]


def test_each_set_is_counted_by_itself() -> None:
    """A page names how many attentions of how many repositories are in all, and in each set."""
    rows = [replace(entry(RIGHT, "right"), verdict="pass", held_out=n, name=str(n)) for n in (2, 0)]
    lines = list(corpus_page([*rows, replace(entry(WRONG, "wrong"), verdict="fail", held_out=2)]))

    assert "3 attentions of 2 public repositories." == lines[0]
    sets = [line for line in lines if line.startswith(("| development", "| held out"))]
    assert [
        "| development | 1 | 1 | 1 of 1 | 0 of 1 | 0 of 0 | 0 of 0 | 0 of 0 |",
        "| held out 2 | 2 | 2 | 1 of 1 | 0 of 1 | 1 of 1 | 0 of 1 | 0 of 0 |",
    ] == sets


def test_a_later_verdict_stands_beside_the_first() -> None:
    """Verdicts now have the later one, and the first stays; a miss of the first alone is mended."""
    first = replace(entry(WRONG, "wrong"), verdict="pass", held_out=1, miss="not asked")
    open_still, mended = (
        list(corpus_page([first])),
        list(corpus_page([replace(first, later="fail")])),
    )

    counts = ["| wrong | 1 | 0 | 1 | 0 | 0 | 0 |", "| wrong | 1 | 1 | 0 | 0 | 0 | 0 |"]
    assert counts == [line for line in mended if line.startswith("| wrong | 1")]
    for lines, heading in (
        (open_still, "Known misses"),
        (mended, "Missed at first, judged rightly"),
    ):
        (found,) = [line for line in lines if "isse" in line and line.startswith("## ")]
        assert found.startswith(f"## {heading}")
        assert lines[-2].endswith("| wrong | pass | not asked |")


def test_verdicts_are_the_commands(sources: Path) -> None:
    """A right attention passes, a wrong one fails, and a name that is missing is refused."""
    found = [
        judge_entry(entry(RIGHT, "right"), sources, ["--cases", "40", "--in-process"]),
        judge_entry(entry(WRONG, "wrong"), sources, ["--cases", "40", "--in-process"]),
        judge_entry(entry({**RIGHT, "name": "nothing"}, "right"), sources),
    ]

    assert ["pass", "fail", "refused"] == [each.verdict for each in found]
    assert "equals torch" in found[0].sentence
    assert "nothing" in found[2].sentence


def test_an_exception_of_the_command_is_no_verdict(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 1 without a written verdict is a traceback, which condemns no target."""
    done = subprocess.CompletedProcess([], 1, "", "Traceback\nAttributeError: no eval\n")
    monkeypatch.setattr(subprocess, "run", lambda *_a, **_k: done)

    found = judge_entry(entry(WRONG, "wrong"), sources)

    assert ("no verdict", "AttributeError: no eval") == (found.verdict, found.sentence)


@pytest.fixture
def _judged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each entry the verdict of the command (above), without its processes."""

    def judge(one: CorpusEntry, _sources: Path, options: Sequence[str]) -> EntryVerdict:
        assert ["--cases", "40", "--in-process"] == [*options]
        return EntryVerdict(
            entry=one, verdict="pass" if one.path == RIGHT["path"] else "fail", sentence=""
        )

    monkeypatch.setattr(corpus_run, "judge_entry", judge)


@pytest.mark.usefixtures("_judged_at_once")
def test_a_contradiction_is_named_and_decides_the_status(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong truth in the manifest is a contradiction: it is listed, and the status is 1."""
    manifest = tmp_path / "corpus.jsonl"
    for truth, status in (("wrong", 0), ("right", 1)):
        manifest.write_text(json.dumps({**WRONG, "truth": truth}) + "\n", encoding="utf-8")
        asked = [str(sources), "--manifest", str(manifest), OPTIONS]

        assert status == main(asked)
        assert bool(status) == ("| b/wrong |" in capsys.readouterr().out)


@pytest.mark.usefixtures("_judged_at_once")
def test_publishing_writes_the_verdicts(sources: Path, tmp_path: Path) -> None:
    """The published manifest has each verdict, the table beside it counts them."""
    manifest = tmp_path / "corpus.jsonl"
    rows = ({**RIGHT, "truth": "right"}, {**WRONG, "truth": "wrong"})
    manifest.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")

    main([str(sources), "--manifest", str(manifest), OPTIONS, "--publish"])

    assert ["pass", "fail"] == [each.verdict for each in read_manifest(manifest)]
    assert "| right | 1 | 1 | 0 | 0 | 0 | 0 |" in manifest.with_suffix(".md").read_text("utf-8")


def test_a_moved_verdict_is_said() -> None:
    """A verdict unlike the published one is a line with both; an equal one is none."""
    published = replace(entry(RIGHT, "right"), verdict="pass")
    lines = [
        list(changed_verdicts([EntryVerdict(entry=published, verdict=verdict, sentence="why")]))
        for verdict in ("pass", "fail")
    ]

    assert [[], ["a/right projected.py:f was pass, is fail: why"]] == lines


def test_letting_a_wrong_one_through_is_a_contradiction() -> None:
    """A wrong attention that passes contradicts; one that is refused or inconclusive does not."""
    outcomes = [
        EntryVerdict(entry=entry(WRONG, "wrong"), verdict=verdict, sentence="")
        for verdict in ("pass", "fail", "refused", "inconclusive")
    ]

    assert [True, False, False, False] == [each.contradicts for each in outcomes]
    assert 1 == sum("b/wrong" in line for line in corpus_markdown(outcomes))
