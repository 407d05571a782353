"""Recorded answers judge as torch does, to the bit, where there is no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest

import mha_parity
from mha_parity.__main__ import main
from mha_parity.answers import answers_file
from mha_parity.answers.tensors import join_long_double, split_long_double
from mha_parity.core.safetensors import dump, load_tensors
from mha_parity.judging import tolerance
from mha_parity.oracle import error_bound
from mha_parity.oracle.reference import EXTENDED, reference_answer
from mha_parity.oracle.torch_answers import NotRecordedError, using_record
from mha_torch import plain
from subject_checks import LAYER, RIGHT, WRONG

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = Path(answers_file.__file__).with_name("schema.json")
# What may differ between a run with torch and one by recorded answers.
OTHER = ("environment", "notes", "seconds")


def document(target: str, **options: Any) -> dict[str, Any]:
    """Return the verdict as JSON, without what may differ."""
    verdict = mha_parity.judge(target, in_process=True, shrink=False, draw=False, **options)
    found = json.loads(json.dumps(verdict.to_dict(), default=str))
    text = json.dumps({k: v for k, v in found.items() if k not in OTHER})
    return json.loads(text, object_hook=_without_seconds)  # type: ignore[no-any-return]


def _without_seconds(found: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in found.items() if k not in {"seconds", "replay"}}


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    ("target", "words", "options"),
    [
        (LAYER, ("--grad",), {"grad": True}),
        (RIGHT, (), {}),
        (WRONG, (), {}),
    ],
    ids=["layer with gradients", "right", "wrong"],
)
def test_the_judgements_are_those_with_torch_to_the_bit(
    record: Callable[..., str], target: str, words: tuple[str, ...], options: dict[str, Any]
) -> None:
    """Errors, what is allowed, accuracy, power, diagnosis: all of the document is equal."""
    path = record(target, *words, "--cases", "40")
    by_torch = document(target, cases=40, **options)
    assert by_torch == document(target, cases=40, answers=path, **options)
    assert (target == WRONG) == bool(by_torch["failures"])


def test_without_torch_a_right_and_a_wrong_attention_are_judged(
    record: Callable[..., str], tmp_path: Path
) -> None:
    """In a fresh process that cannot import torch, the right one passes, the bug is named."""
    path = record(RIGHT, "--cases", "60")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
    search = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    verdicts = str(tmp_path / "verdicts.json")
    words = ["check", RIGHT, WRONG, "--answers", path, "--json", verdicts]
    done = subprocess.run(
        [sys.executable, "-m", "mha_parity", *words],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": search},
    )  # fmt: skip
    assert 1 == done.returncode, done.stderr
    right, wrong = json.loads(Path(verdicts).read_text(encoding="utf-8"))["runs"]
    assert ("pass", 60) == (right["outcome"], right["cases"]["passed"])
    assert ("fail", "scale-dmodel") == (wrong["outcome"], wrong["diagnosis"][0]["bug"])
    assert wrong["notes"][0].startswith("judged by recorded answers of torch")


def test_the_forbidden_import_is_caught(tmp_path: Path) -> None:
    """The fresh process of the test above does end where something imports torch."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
    done = subprocess.run(
        [sys.executable, "-m", "mha_parity", "check", RIGHT, "--cases", "1"],
        capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert (1, True) == (done.returncode, "torch was imported" in done.stderr)


def test_the_manifest_has_the_schema(record: Callable[..., str]) -> None:
    """A written manifest is valid, and names arrays that the file has."""
    arrays, metadata = load_tensors(Path(record(LAYER, "--grad", "--cases", "40")).read_bytes())
    manifest = json.loads(metadata["manifest"])
    jsonschema.validate(manifest, json.loads(SCHEMA.read_text(encoding="utf-8")))
    named = {
        name
        for case in manifest["cases"]
        for group in (case["inputs"], case["allowed"], case["bound"], *_arrays(case))
        for name in group.values()
    }
    assert named == {name.removesuffix(".low") for name in arrays}


def _arrays(case: dict[str, Any]) -> list[dict[str, str]]:
    return [result["arrays"] for result in case["results"]]


def test_any_reader_can_judge_by_the_file(record: Callable[..., str]) -> None:
    """Torch's own output lies within what is allowed of the reference, in every case and head."""
    arrays, metadata = load_tensors(Path(record(RIGHT, "--cases", "40")).read_bytes())
    cases = json.loads(metadata["manifest"])["cases"]
    assert 40 == len(cases)
    for case in cases:
        results = {r["kind"]: r["arrays"] for r in reversed(case["results"])}
        own = arrays[results["output weights"]["output"]]
        reference = join_long_double(results["reference"]["output"], arrays)
        number = np.isfinite(reference)  # where a value is infinite, no reader subtracts
        np.testing.assert_array_equal(number, np.isfinite(own), case["id"])
        difference = np.abs(np.where(number, own, 0) - np.where(number, reference, 0))
        heads = difference.reshape(*own.shape[:2], int(case["options"]["num_heads"]), -1)
        worst = np.nan_to_num(heads).max(axis=(1, 3), initial=0)
        assert (worst <= arrays[case["allowed"]["output"]]).all(), case["id"]
        assert (arrays[case["bound"]["output"]] >= 0).all()


def test_long_double_is_stored_whole() -> None:
    """Two arrays of float64 hold a long double to its last bit, infinities included."""
    array = np.array([1 / np.longdouble(3), -np.inf, np.nan, 0, np.longdouble(2) ** 80 + 1])
    arrays = dict(split_long_double("a", array))
    np.testing.assert_array_equal(join_long_double("a", arrays), array, strict=True)


def test_what_is_not_recorded_is_no_guess(record: Callable[..., str]) -> None:
    """A problem that no case of the file has gets no reference, and torch is not asked."""
    kept = answers_file.read_record(record(RIGHT, "--cases", "40"))
    problem = next(iter(kept.problems.values()))
    with using_record(kept):
        assert reference_answer(problem).output.shape == problem.output_shape
        with pytest.raises(NotRecordedError, match=r"have no reference of qkv-.*; record it, or"):
            reference_answer(problem.replace(query=problem.query + 1))


def changed(path: str, folder: Path, change: str) -> str:
    """Return a copy of a file with something wrong with it."""
    block = Path(path).read_bytes()
    arrays, metadata = load_tensors(block)
    if change == "cut":
        block = block[:-9]
    elif change == "bit":
        block = block[:-1] + bytes([block[-1] ^ 1])
    elif change == "manifest":
        other = {**metadata, "manifest": metadata["manifest"].replace('"yes"', '"no"', 1) + " "}
        block = dump(arrays, other)
    elif change == "newer":
        block = dump(arrays, {**metadata, "schema": "mha-parity-answers/2"})
    elif change == "foreign":
        block = dump({"weight": np.ones(3)}, {"format": "pt"})
    else:
        block = b"PK\x03\x04 no safetensors at all"
    copy = folder / "copy.safetensors"
    copy.write_bytes(block)
    return str(copy)


CHANGES = {
    "cut": r"bytes of data, but should have \d+",
    "bit": "is damaged: its numbers do not have the checksum",
    "manifest": "is damaged: its numbers do not have the checksum",
    "newer": "has answers of version 2, but this mha-parity reads version 1: upgrade it",
    "foreign": "has no recorded answers in it",
    "other": "but should have a header of",
}


@pytest.mark.parametrize(("change", "sentence"), CHANGES.items(), ids=CHANGES)
def test_a_file_that_cannot_be_used_is_one_sentence(
    record: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: str,
    sentence: str,
) -> None:
    """A damaged, foreign or later file leaves with 2 and one sentence with the remedy."""
    path = changed(record(RIGHT, "--cases", "40"), tmp_path, change)
    capsys.readouterr()
    refused(["check", RIGHT, "--in-process", "--answers", path], sentence, capsys)


def refused(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Assert that a command leaves with 2 and one sentence."""
    assert 2 == main(words)
    errors = capsys.readouterr().err
    assert 1 == len(errors.splitlines())
    with pytest.raises(ValueError, match=sentence):
        raise ValueError(errors)


def test_other_mistakes_are_one_sentence(
    record: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    """No such file, no case for the target, a seed, several processes."""
    path = record(RIGHT, "--cases", "40")
    capsys.readouterr()
    by = ["--answers", path]
    refused(["check", RIGHT, "--answers", "nowhere"], "No such file or directory; write", capsys)
    refused(["check", LAYER, *by], "no case with only what the target offers; record", capsys)
    refused(["check", RIGHT, *by, "--seed", "3"], "got --seed with --answers", capsys)
    refused(["check", RIGHT, *by, "--jobs", "2"], "and so have recorded answers", capsys)


def test_a_case_is_replayed_by_recorded_answers(
    record: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The replay line of a failure names the file, and the case fails there as in the run."""
    path = record(WRONG, "--cases", "40")
    verdict = mha_parity.judge(WRONG, in_process=True, cases=40, answers=path)
    words = verdict.failures[0].replay.split()[1:]
    assert ["--answers", path] == words[-2:]
    capsys.readouterr()
    assert 1 == main([*words, "--in-process"])
    assert "no rounding explains it" in " ".join(capsys.readouterr().out.split())


def test_what_follows_from_the_reference_is_not_computed_again(
    record: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the stages in long double, nor bounds, nor orders of evaluation: the file has them.

    Cases of extreme values, and rows without keys, ask for more than is recorded.
    """
    path = record(RIGHT, "--cases", "40")
    asked: list[str] = []

    def counted(module: Any, name: str) -> None:
        function = getattr(module, name)

        def watched(*args: Any, **keywords: Any) -> Any:
            if keywords.get("dtype", EXTENDED) is EXTENDED:
                asked.append(name)
            return function(*args, **keywords)

        monkeypatch.setattr(module, name, watched)

    counted(plain, "sdpa_stages")
    counted(error_bound, "bound_with_model")
    counted(tolerance, "attend_in_order")
    options: dict[str, Any] = {"in_process": True, "shrink": False, "draw": False}
    assert 0 == mha_parity.judge(RIGHT, answers=path, **options).failed
    by_record, asked[:] = list(asked), []
    assert 0 == mha_parity.judge(RIGHT, cases=40, **options).failed
    assert {"sdpa_stages", "bound_with_model", "attend_in_order"} == set(asked)
    assert 4 * len(by_record) < len(asked)
