"""The command's border: one sentence and status 2 for every mistake, the verdict's status else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mha_parity.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable

SUBJECTS = Path(__file__).parent / "subjects"
LAYER_CASE = "mha-N3-L67-S67-H4-D6-bias-boolmask-avgweights-float32-apart-s98"
Said = tuple[int, str, str]  # exit status, output, errors

MISTAKES = {
    "": r"the following arguments are required: COMMAND",
    "chekc": r"'chekc' \(choose from .*'check'",
    "check nowhere:f": r"no module 'nowhere'; install it",
    "check mha_numpy": r"'mha_numpy', but should be `package\.module:attr`",
    "check missing.py:f": r"no file missing\.py",
    "check missing.ipynb:f": r"no file missing\.ipynb",
    "check projected.py:g": r"no attribute 'g'; it has f, ",
    "check attention.ipynb:g": r"no attribute 'g'; it has f, ",
    "check numpy:pi": r"of type float, but should be a function or a class",
    "check --convention qvk projected.py:f": r"no such one; did you mean 'qkv'\?",
    "check --cases 0": r"--cases: got '0', but should be a whole number from 1 up",
    "check --cases many": r"--cases: got 'many', but should be a whole number from 1 up",
    "check --seed -1": r"--seed: got '-1', but should be a whole number from 0 up",
    "check --dtype float31": r"--dtype: got 'float31', .*; did you mean 'float32'\? See",
    "check --feature sideways=yes": r"'sideways', but no such feature axis; known are form",
    "check --feature attn=caussal": r"'caussal', but no such value of attn; did you mean 'causal'",
    "check --feature attn": r"--feature: got 'attn', but should be AXIS=VALUE",
    "check --feature bias=yes projected.py:f": r"bias=yes .*, but the target offers only bias=no",
    "check --timeout 0": r"--timeout: got '0', but should be a number above 0",
    "check --memory nan": r"--memory: got 'nan', but should be a number above 0",
    "check --fully-masked maybe": r"got 'maybe', .*; known are nan, zero, uniform",
    "check --sideways": r"unrecognized arguments: --sideways",
    "check --json nowhere/x.json": r"there is no folder nowhere; make it",
    "check --junit nowhere/x.xml": r"there is no folder nowhere; make it",
    "check --html nowhere/x.html": r"there is no folder nowhere; make it",
    "replay": r"the following arguments are required: CASE",
    "replay nonsense": r"`nonsense` is no case id",
    f"replay {LAYER_CASE} missing.py:f": r"no file missing\.py",
    f"replay {LAYER_CASE} projected.py:f": r"needs form=mha, but projected\.py:f offers qkv",
    "explain nothing": r"got the bug 'nothing', but the catalogue has no such one",
    "list colours": r"'colours' \(choose from ",
}


@pytest.fixture
def said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Said]:
    """Run a command line where the subjects are; return its status and what it wrote."""
    monkeypatch.chdir(SUBJECTS)

    def run(line: str) -> Said:
        try:
            status = main(line.split())
        except SystemExit as left:
            status = int(left.code or 0)
        return status, *capsys.readouterr()

    return run


@pytest.mark.parametrize(("line", "sentence"), MISTAKES.items(), ids=MISTAKES)
def test_a_mistake_is_one_sentence(said: Callable[[str], Said], line: str, sentence: str) -> None:
    """A mistake costs one sentence with what was got and the remedy, status 2, no traceback."""
    status, output, errors = said(line)
    assert (status, output) == (2, "")
    assert len(errors.splitlines()) == 1
    assert errors.startswith("mha-parity")
    assert errors.endswith((".\n", "?\n"))
    assert re.search(sentence, errors), errors


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("projected.py:f", 0),
        ("wrong_scale.py:f", 1),
        ("wrong_split.py:f", 1),
        ("wrong_softmax_axis.py:f", 1),
    ],
)
def test_the_status_is_the_verdict(said: Callable[[str], Said], target: str, status: int) -> None:
    """A right attention leaves with 0, each of three wrong ones with 1 and its place."""
    found, output, _ = said(f"check {target} --in-process --cases 40")
    assert found == status
    assert ("Parity holds" in output) == (status == 0)
    assert ("sample" in output and "mha-parity replay" in output) == (status == 1)


def test_a_run_without_a_verdict_leaves_with_3(said: Callable[[str], Said]) -> None:
    """Two cases cannot try every feature that is offered: nothing is proved, status 3."""
    status, output, _ = said("check projected.py:f --in-process --cases 2")
    assert status == 3, output
    assert "Parity holds" not in output


def test_the_worst_of_several_targets_decides(said: Callable[[str], Said]) -> None:
    """Two targets in one call are both judged; one that fails is enough to leave with 1."""
    status, output, _ = said("check projected.py:f wrong_scale.py:f --in-process --cases 20")
    assert status == 1
    assert "projected.py:f equals torch" in output
    assert "wrong_scale.py:f" in output


def test_the_installed_command_behaves_alike() -> None:
    """The console script, in a process of its own, leaves with 2 and one sentence too."""
    command = Path(sys.executable).parent / "mha-parity"
    done = subprocess.run(
        [command, "check", "nowhere:f"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "no module 'nowhere'" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_the_version_is_the_distributions(said: Callable[[str], Said]) -> None:
    """`--version` prints the version that the distribution carries."""
    from importlib.metadata import version

    status, output, _ = said("--version")
    assert (status, output) == (0, f"mha-parity {version('mha-parity')}\n")
