"""The composite action and the pre-commit hook: their commands, run on right and wrong targets."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from subject_checks import SUBJECTS

yaml: Any = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[3]
ACTION = yaml.safe_load((ROOT / ".github/actions/parity/action.yml").read_text(encoding="utf-8"))
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
TARGETS = {"right": (f"{SUBJECTS}/projected.py:f", 0), "wrong": (f"{SUBJECTS}/wrong_scale.py:f", 1)}
FEW = ("--cases", "60", "--dtypes", "float64", "--features", "regime=normal", "--in-process")
REPORTS = {"parity.json", "parity.xml", "parity.html", "parity.md", "parity.sarif"}


def steps() -> dict[str, dict[str, Any]]:
    """Return the steps of the action by their names."""
    return {step["name"]: step for step in ACTION["runs"]["steps"]}


def substituted(step: dict[str, Any], inputs: dict[str, str]) -> dict[str, str]:
    """Return the environment of a step, with the inputs in it; others have their defaults."""
    values = {name: each.get("default", "") for name, each in ACTION["inputs"].items()} | inputs
    return {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: values[found[1]], text)
        for name, text in step["env"].items()
    }


def in_shell(
    line: str, folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a line as GitHub's runner does, with our command first on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", line],  # noqa: S607
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize("name", TARGETS)
def test_the_action_judges_and_writes_all_reports(name: str, tmp_path: Path) -> None:
    """The status of its step is the verdict's, and the last step keeps all reports."""
    target, status = TARGETS[name]
    step = steps()["Judge"]
    given = substituted(step, {"target": target, "options": shlex.join(FEW)})
    summary = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    done = in_shell(step["run"], tmp_path, given | summary)
    assert status == done.returncode, done.stderr
    assert {each.name for each in tmp_path.glob("parity.*")} == REPORTS
    assert sorted(REPORTS) == sorted(steps()["Keep the reports"]["with"]["path"].split())
    assert all((tmp_path / each).stat().st_size for each in REPORTS)
    assert ("Parity holds" if name == "right" else "Parity does not hold") in Path(
        summary["GITHUB_STEP_SUMMARY"]
    ).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("version", "installed"),
    [("", f"{ROOT}/.github/actions/parity/../../..[report,torch]"), ("mha-parity==1", None)],
    ids=["checkout", "version"],
)
def test_the_action_installs_what_its_inputs_say(
    tmp_path: Path, version: str, installed: str | None
) -> None:
    """Where torch cannot be imported it comes from the index named, then comes the version."""
    stub = tmp_path / "python"
    stub.write_text('#!/bin/sh\necho "$@" >> calls.txt\ntest "$1" != -c\n', encoding="utf-8")
    stub.chmod(0o755)
    step = steps()["Install"]
    index = {"torch-index": "https://example.org/whl"} | ({"version": version} if version else {})
    given = substituted(step, {"target": "x:f", **index})
    path = {
        "PATH": os.pathsep.join([str(tmp_path), os.environ["PATH"]]),
        "GITHUB_ACTION_PATH": f"{ROOT}/.github/actions/parity",
    }
    done = in_shell(step["run"], tmp_path, given | path)
    assert 0 == done.returncode, done.stderr
    assert [
        "-c import torch",
        "-m pip install torch --index-url https://example.org/whl",
        f"-m pip install {installed or version}",
    ] == (tmp_path / "calls.txt").read_text(encoding="utf-8").splitlines()


def test_no_word_of_an_input_is_a_pattern(tmp_path: Path) -> None:
    """A word with an asterisk or a bracket reaches the command as it stands."""
    stub = tmp_path / "mha-parity"
    stub.write_text('#!/bin/sh\necho "$2" "$3"\n', encoding="utf-8")
    stub.chmod(0o755)
    (tmp_path / "a.py").touch()
    step = steps()["Judge"]
    given = substituted(step, {"target": "*.py [a].py"})
    path = {"PATH": os.pathsep.join([str(tmp_path), os.environ["PATH"]])}
    assert "*.py [a].py\n" == in_shell(step["run"], tmp_path, given | path).stdout


def test_every_input_reaches_a_step() -> None:
    """An input that no step reads, and one that is read and not declared, would be a mistake."""
    texts = [
        text
        for step in ACTION["runs"]["steps"]
        for part in ("env", "with")
        for text in step.get(part, {}).values()
    ]
    read = set(re.findall(r"inputs\.([\w-]+)", " ".join(texts)))
    assert set(ACTION["inputs"]) == read


@pytest.mark.parametrize("name", TARGETS)
def test_the_hook_judges_its_arguments(name: str, tmp_path: Path) -> None:
    """Its entry and the arguments of a configuration are one command, without any files."""
    target, status = TARGETS[name]
    assert not HOOK["pass_filenames"]
    line = shlex.join([*shlex.split(HOOK["entry"]), target, *FEW])
    done = in_shell(line, tmp_path, {})
    assert status == done.returncode, done.stderr


def test_a_wrong_command_is_seen(tmp_path: Path) -> None:
    """A misspelt option in the action ends with another status than a verdict's."""
    step = steps()["Judge"]
    given = substituted(step, {"target": TARGETS["right"][0]})
    line = step["run"].replace("--sarif", "--serif")
    assert 2 == in_shell(line, tmp_path, given).returncode
