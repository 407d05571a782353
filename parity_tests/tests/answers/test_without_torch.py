"""What works without torch does, and what needs it says so in one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from subject_checks import RIGHT, SUBJECTS, WRONG

if TYPE_CHECKING:
    from collections.abc import Callable

# Python imports `sitecustomize` in every process: each finds no torch, as where none is installed.
HIDING = """
from functools import partial
from importlib.machinery import PathFinder
def without_torch(find, name, path=None, target=None):
    return None if name.partition(".")[0] == "torch" else find(name, path, target)
PathFinder.find_spec = partial(without_torch, PathFinder.find_spec)
"""
# Runs commands one after the other: for each its status and what it wrote to stderr, or `here`.
COMMANDS = """
import contextlib, io, json, sys
from mha_parity.__main__ import main
for words in json.loads(sys.argv[1]):
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        status = main(words)
    print(json.dumps([status, errors.getvalue()]))
"""


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a process in which torch is not installed."""
    (tmp_path / "sitecustomize.py").write_text(HIDING, encoding="utf-8")
    before = [each for each in [os.environ.get("PYTHONPATH")] if each]
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *before])}


def python(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in an environment."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def test_torch_cannot_be_imported_there(bare: dict[str, str]) -> None:
    """The environment of these tests does hide torch, and nothing else."""
    done = python(bare, "-c", "import numpy, torch")
    assert "No module named 'torch'" in done.stderr


def test_a_right_and_a_wrong_attention_are_judged_and_reported(
    record: Callable[..., str], bare: dict[str, str], tmp_path: Path
) -> None:
    """By recorded answers the right one passes, the bug is named, every report is written."""
    kinds = ("json", "junit", "html", "markdown", "sarif")
    files = [word for kind in kinds for word in (f"--{kind}", str(tmp_path / kind))]
    path = record(RIGHT, "--cases", "60")
    done = python(bare, "-m", "mha_parity", "check", RIGHT, WRONG, "--answers", path, *files)
    assert 1 == done.returncode, done.stderr
    right, wrong = json.loads((tmp_path / "json").read_text(encoding="utf-8"))["runs"]
    assert ("pass", 60) == (right["outcome"], right["cases"]["passed"])
    assert ("fail", "scale-dmodel") == (wrong["outcome"], wrong["diagnosis"][0]["bug"])
    assert wrong["notes"][0].startswith("judged by recorded answers of torch")
    texts = {kind: (tmp_path / kind).read_text(encoding="utf-8") for kind in kinds}
    assert all("wrong_scale" in text for text in texts.values())
    assert "scale-dmodel" in texts["html"]


HALF = """
import numpy as np

def attention(Q, K, V, n_heads):
    scores = np.einsum("lhd,shd->hls", *(x.reshape(len(x), n_heads, -1) for x in (Q, K)))
    scores = scores / np.sqrt(Q.shape[-1]).astype(Q.dtype)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = np.einsum("hls,shd->lhd", p / p.sum(-1, keepdims=True), V.reshape(len(V), n_heads, -1))
    return heads.reshape(len(Q), -1)
"""


def test_a_wrong_attention_of_float16_is_named_without_torch(
    record: Callable[..., str], bare: dict[str, str], tmp_path: Path
) -> None:
    """What torch would be asked of an overflow besides is left out, and not the verdict."""
    (tmp_path / "half.py").write_text(HALF, "utf-8")
    target = f"{tmp_path}/half.py:attention"
    path = record(target, "--cases", "60")
    done = python(bare, "-m", "mha_parity", "check", target, "--answers", path)
    assert 1 == done.returncode, done.stderr
    assert "[scale-dmodel]" in done.stdout


TORCH = "torch is not installed, but this needs it; pip install 'mha-parity[torch]'."
EITHER = "pip install 'mha-parity[torch]', or pass --answers FILE, which `mha-parity record` writes"
CASE = "qkv-N1-L2-S2-H2-D1-unbatched-float64-s0"
NEED_TORCH = {
    ("check", RIGHT, "--in-process"): EITHER,
    ("check",): EITHER,
    ("replay", CASE, RIGHT, "--in-process"): EITHER,
    ("record", RIGHT, "-o", "answers.safetensors"): TORCH,
    ("check", "torch.nn:MultiheadAttention", "--path", "eval"): TORCH,
    ("audit",): TORCH,
    ("bench",): TORCH,
    ("mutants",): TORCH,
}


def test_what_needs_torch_names_the_ways_out(bare: dict[str, str]) -> None:
    """Each command that cannot do without leaves with 2 and one sentence, and writes no file."""
    done = python(bare, "-c", COMMANDS, json.dumps(list(NEED_TORCH)))
    assert 0 == done.returncode, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for (words, sentence), (status, errors) in zip(NEED_TORCH.items(), found, strict=True):
        assert (2, 1, True) == (status, errors.count("\n"), sentence in errors), (words, errors)


def test_identify_and_adapt_do_without_torch(bare: dict[str, str]) -> None:
    """Experiments ask the target alone; the card of a wrong attention says what it computes."""
    words = [["identify", WRONG, "--in-process"], ["adapt", RIGHT], ["explain", "scale-dmodel"]]
    done = python(bare, "-c", COMMANDS, json.dumps(words))
    assert 0 == done.returncode, done.stderr
    assert [1, 0, 0] == [json.loads(line)[0] for line in done.stdout.splitlines()]


def test_the_plugin_says_so_once(bare: dict[str, str]) -> None:
    """A pytest that is asked to judge ends with the same sentence, and no test has failed."""
    done = python(
        bare, "-m", "pytest", "-p", "no:cacheprovider", "--mha-parity-target", RIGHT,
        "--mha-parity-in-process", "--rootdir", str(SUBJECTS), str(SUBJECTS / "projected.py"),
    )  # fmt: skip
    assert pytest.ExitCode.USAGE_ERROR == done.returncode
    (sentence,) = done.stderr.split("\n\n")[:-1]
    assert EITHER in sentence


def test_python_gets_the_sentence_as_an_error(bare: dict[str, str]) -> None:
    """`judge` and `assert_parity` raise ValueError with it."""
    code = """
import mha_parity
for function in (mha_parity.judge, mha_parity.assert_parity):
    try:
        function("mha_numpy:MultiheadAttention", in_process=True)
    except ValueError as error:
        print(error)
"""
    done = python(bare, "-c", code)
    assert (2, 2) == (done.stdout.count("\n"), done.stdout.count(EITHER)), done.stderr
