"""A run in shards has the verdict of the run in one piece, or one sentence why it has none."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mha_parity import diagnose
from mha_parity.__main__ import main
from mha_parity.core.check_result import SYSTEMATIC
from mha_parity.core.deadline import Deadline
from mha_parity.diagnose.experiments.conditions import sizes
from mha_parity.run import shard_file
from mha_parity.run.case_run import CaseResult
from mha_parity.run.chunks import Shard
from mha_parity.run.shards import kept_places
from subject_checks import RIGHT, SUBJECTS, WRONG

if TYPE_CHECKING:
    from collections.abc import Callable

# Off by 64 roundings in the same direction: it shows over many cases.
GAIN = f"""
import sys
sys.path.insert(0, {str(SUBJECTS)!r})
from projected import f as right

def f(Q, K, V, n_heads):
    output = right(Q, K, V, n_heads)
    return output * output.dtype.type(1 + 2.0 ** -47)
"""
FEW = ("--cases", "60", "--in-process")


@pytest.fixture(scope="module")
def gain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a target that only the sum over the run shows to be wrong."""
    path = tmp_path_factory.mktemp("gain") / "gain.py"
    path.write_text(GAIN, encoding="utf-8")
    return f"{path}:f"


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Return a function that judges the shards of a target, once each."""
    folder = tmp_path_factory.mktemp("shards")
    kept: dict[tuple[object, ...], list[str]] = {}

    def judged(target: str, *words: str, of: int = 3) -> list[str]:
        key = (target, of, *words)
        paths = [str(folder / f"{len(kept)}-{number}.json") for number in range(1, of + 1)]
        if key not in kept:
            for number, path in enumerate(paths, start=1):
                shard = ["--shard", f"{number}/{of}", "--json", path]
                assert 0 == main(["check", target, *FEW, *words, *shard])
            kept[key] = paths
        return kept[key]

    return judged


def document(words: list[str], path: Path) -> tuple[int, Any]:
    """Return the exit status of a command and the verdict that it wrote, without times."""
    status = main([*words, "--json", str(path)])
    return status, json.loads(path.read_text(encoding="utf-8"), object_hook=_without_seconds)


def _without_seconds(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "seconds"}


@pytest.mark.repeats(3)
@pytest.mark.parametrize("name", ["right", "wrong", "float32", "gain"])
def test_the_merged_verdict_is_that_of_the_run(
    name: str,
    gain: str,
    shards: Callable[..., list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counts, errors, accuracy, power, diagnosis, shrunk cases and status are equal; one note."""
    # A busy machine must not decide how many sizes are asked for.
    monkeypatch.setattr(sizes, "QUICK", math.inf)
    monkeypatch.setattr(diagnose, "Deadline", lambda seconds: Deadline(10 * seconds))
    rounded = f"{SUBJECTS}/float32_inside.py:softmax_and_later_keys"
    target = {"right": RIGHT, "wrong": WRONG, "gain": gain, "float32": rounded}[name]
    paths = shards(target)
    expected, whole = document(["check", target, *FEW], tmp_path / "whole.json")
    status, merged = document(["merge", *reversed(paths)], tmp_path / "merged.json")
    note = merged["notes"].pop(0)
    assert note.startswith("merged from 3 shards: statelessness was asked within each shard")
    for each in (whole, merged):
        for failure in each["failures"]:
            if failure["check"] == SYSTEMATIC:  # sums in another order
                failure["error"] = pytest.approx(failure["error"], rel=1e-9)
    assert (expected, whole) == (status, merged)
    assert int(name != "right") == status
    assert name != "gain" or SYSTEMATIC in checks_that_fail(merged)


def checks_that_fail(found: dict[str, Any]) -> set[str]:
    """Return the names of the checks that fail."""
    return {failure["check"] for failure in found["failures"]}


def test_the_sums_of_each_shard_count(
    gain: str, shards: Callable[..., list[str]], tmp_path: Path
) -> None:
    """From shards that carried no sums the systematic error is not seen."""
    paths = []
    for number, path in enumerate(shards(gain)):
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        found["runs"][0]["systematic"] = {"sums": [], "spread": {}, "last": {}}
        paths.append(_written(found, tmp_path / f"{number}.json"))
    _, merged = document(["merge", *paths], tmp_path / "merged.json")
    assert 60 == merged["cases"]["run"]
    assert SYSTEMATIC not in checks_that_fail(merged)


def test_a_shard_is_read_as_it_was_written(
    gain: str, shards: Callable[..., list[str]], tmp_path: Path
) -> None:
    """Errors, infinities among them, and the sums of each direction come back to the bit."""
    (path, *_) = shards(gain)
    (run,) = shard_file.read_shards(path)
    check = replace(run.found.case_results[0].check_results[0], error=math.inf, allowed=math.nan)
    run.found.state.append(check)
    copy = str(tmp_path / "copy.json")
    Path(copy).write_text(shard_file.shards_document([run]), "utf-8")
    ((again,),) = (shard_file.read_shards(copy),)
    assert run.found.systematic.sums.keys() == again.found.systematic.sums.keys()
    for key, rows in run.found.systematic.sums.items():
        np.testing.assert_array_equal(rows, again.found.systematic.sums[key], strict=True)
    assert any(rows.any() for rows in run.found.systematic.sums.values())
    for field in fields(CaseResult):
        read, written = (
            [getattr(result, field.name) for result in each.found.case_results]
            for each in (again, run)
        )
        assert written == read, field.name
    assert (math.inf, "nan") == (again.found.state[0].error, str(again.found.state[0].allowed))


def test_the_places_of_shards_are_those_of_the_run() -> None:
    """Three shards share out the places of any run, each once; sizes differ by one at most."""
    for total in (0, 1, 2, 3, 7, 60):
        sizes = [Shard(number, 3).size(total) for number in (1, 2, 3)]
        assert (total, True) == (sum(sizes), max(sizes) - min(sizes) <= 1)


def test_as_many_failures_keep_their_arrays_as_in_one_piece() -> None:
    """Chunk by chunk up to 40 of each, until there are 40; and 40 that float32 explains."""

    class Failing:
        fails = True
        right_by_float32 = False

    class Rounded(Failing):
        right_by_float32 = True

    found = list(kept_places([Failing()] * 300))  # type: ignore[list-item]
    assert list(range(40)) == found
    results: list[Any] = [Rounded()] * 200 + [Failing()] * 100
    mixed = list(kept_places(results))
    assert [*range(40), *range(200, 240)] == mixed


def _written(found: dict[str, Any], path: Path) -> str:
    path.write_text(json.dumps(found), encoding="utf-8")
    return str(path)


def _changed(path: str, folder: Path, **changes: object) -> str:
    """Return a copy of a shard's file with changes to its first run."""
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    run = found["runs"][0]
    for name, value in changes.items():
        run[name] = {**run[name], **value} if isinstance(value, dict) else value
    return _written(found, folder / "changed.json")


def _mistakes(paths: list[str], folder: Path) -> dict[str, list[str]]:
    """Return by the sentence that each deserves the files of a merge."""
    one, two, three = paths
    verdict = _written({"schema": "mha-parity/2"}, folder / "verdict.json")
    damaged = _written({"schema": "mha-parity-shard/1", "runs": [{}]}, folder / "damaged.json")
    garbage = folder / "garbage.json"
    garbage.write_text("{", encoding="utf-8")

    def other(**changes: object) -> list[str]:
        folder.joinpath(*changes).mkdir()
        return [one, two, _changed(three, folder.joinpath(*changes), **changes)]

    return {
        "got 2 of 3 shards, without 2; name the files of all": [one, three],
        "got shard 2/3 more than once; name each shard once": [one, two, two, three],
        "the option seed is 0 in .*, but 1 in": other(options={"seed": 1}),
        "the targets is .*projected.py:f in .*, but other:f in": other(target="other:f"),
        "the version of torch is .* in .*, but 1.0 in": other(environment={"torch": "1.0"}),
        "the number of shards is 3 in .*, but 4 in": other(shard=[3, 4]),
        "got 0 cases of .*projected.py:f in shard 3/3, but should be 20": other(cases=[]),
        "of schema mha-parity/2, but should be mha-parity-shard/1": [verdict],
        "which is damaged; write it anew by": [damaged],
        "which is no JSON; write it anew": [str(garbage)],
        "which cannot be read: No such file or directory": [str(folder / "nowhere.json")],
    }


def test_files_that_are_no_run_are_one_sentence(
    shards: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing, repeated, foreign and damaged shards leave with 2 and the remedy."""
    for sentence, paths in _mistakes(shards(RIGHT), tmp_path).items():
        assert_refused(["merge", *paths], sentence, capsys)


def assert_refused(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Assert that a command leaves with 2 and one sentence."""
    capsys.readouterr()
    assert 2 == main(words), sentence
    errors = capsys.readouterr().err
    assert 1 == errors.count("\n"), errors
    assert re.search(sentence, errors), errors


def test_what_makes_no_sense_for_a_shard_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A shard has a file, no page, and never stops early."""
    words = ["check", RIGHT, *FEW, "--shard", "1/3"]
    assert_refused(words, "got --shard 1/3, but should have --json FILE too", capsys)
    words += ["--json", "shard.json"]
    assert_refused([*words, "--html", "page.html"], "got --html with --shard, which has no", capsys)
    assert_refused([*words, "--fail-fast"], "leave --fail-fast out", capsys)
    assert_refused([*words, "--max-failures", "3"], "leave --max-failures out", capsys)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/"])
def test_a_shard_that_is_none_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The number of a shard runs from 1 to how many there are."""
    with pytest.raises(SystemExit, match="2"):
        main(["check", RIGHT, "--shard", text])
    assert f"got '{text}', but should be K/N with K from 1 to N" in capsys.readouterr().err
