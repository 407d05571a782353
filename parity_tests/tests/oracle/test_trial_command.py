"""``mha-parity audit``: findings printed, files written, the exit status; ``check --path``."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from rich.console import Console

from mha_parity.__main__ import main
from mha_parity.selftest import torch_audit
from mha_parity.selftest.torch_audit import GROUPS, TARGET
from mha_torch import Path
from mha_torch import trial as trials
from mha_torch._evidence import Evidence
from mha_torch.trial import FINDINGS, Finding, State, reproduce_finding

if TYPE_CHECKING:
    from pathlib import Path as File


def planted(name: str, evidence: Evidence | None) -> Finding:
    """Return a finding whose reproducer answers `evidence`, or fails without one."""

    def reproduce() -> Evidence:
        if evidence is None:
            raise AttributeError("torch has no such function")
        return evidence

    return Finding(
        name, f"{name} differs", "two calls", frozenset({Path.FAST}), reproduce, ("a/b#1",)
    )


FOUND = planted("one", Evidence(True, {"here": 1.5, "there": float("inf")}))
MENDED = planted("another", Evidence(False, {"here": 0.0}))
LOST = planted("third", None)


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """Put planted findings in the place of torch's own."""
    found = [FOUND, MENDED]
    monkeypatch.setattr(trials, "FINDINGS", found)
    return found


def printed(findings: list[Finding]) -> str:
    """Return the words that a terminal shows of the findings."""
    console = Console(file=io.StringIO(), width=80)
    torch_audit.print_findings([reproduce_finding(finding) for finding in findings], console)
    stream = console.file
    assert isinstance(stream, io.StringIO)
    return " ".join(stream.getvalue().split())


def test_each_finding_is_printed_with_its_case() -> None:
    """Title, state, case, paths, numbers and threads of each, and one sentence over all."""
    shown = printed([FOUND, MENDED])
    assert "one differs" in shown
    assert "found [one]" in shown
    assert "case two calls" in shown
    assert "here: 1.5" in shown
    assert "threads a/b#1" in shown
    assert "mended [another]" in shown
    assert "does not agree with itself in 1 of 2 known ways; 1 are mended." in shown


def test_a_case_that_cannot_run_says_why() -> None:
    """A torch that lacks a function is distinguished from one that has mended its answer."""
    shown = printed([LOST])
    assert "not run [third]" in shown
    assert "because AttributeError: torch has no such function" in shown
    assert "1 could not be run" in shown


@pytest.mark.parametrize(
    ("findings", "status"),
    [([MENDED, MENDED], 0), ([FOUND, MENDED], 1), ([FOUND, LOST], 1), ([MENDED, LOST], 3)],
    ids=["none found", "one found", "one found, one lost", "none found, one lost"],
)
def test_exit_status(findings: list[Finding], status: int) -> None:
    """A difference is said by the status; what could not be run leaves it open whether one is."""
    assert status == torch_audit.status([reproduce_finding(finding) for finding in findings])


@pytest.mark.usefixtures("chosen")
def test_files_are_written(tmp_path: File, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON holds every finding as data, an infinite number as null; Markdown a row for each."""
    data, page = tmp_path / "trial.json", tmp_path / "trial.md"
    assert 1 == main(["audit", "fast", "--json", str(data), "--markdown", str(page)])
    written: dict[str, Any] = json.loads(data.read_text(encoding="utf-8"))
    assert ("mha-parity/torch-trial/1", "fast", torch.__version__) == (
        written["schema"], written["path"], written["torch"],
    )  # fmt: skip
    first, second = written["findings"]
    assert ("found", {"here": 1.5, "there": None}) == (first["state"], first["numbers"])
    assert "mended" == second["state"]
    table = page.read_text(encoding="utf-8")
    assert "| one differs | two calls | a/b#1 |" in table
    assert "| another differs (mended) | two calls | a/b#1 |" in table
    assert "JSON written to" in capsys.readouterr().out


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_runs_its_findings(
    group: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A group has the findings in which such a path has a part; `all` has each of them."""
    seen: list[str] = []

    def noticed(finding: Finding) -> trials.FindingOutcome:
        seen.append(finding.name)
        return trials.FindingOutcome(finding, State.FOUND)

    monkeypatch.setattr(trials, "reproduce_finding", noticed)
    assert 1 == main(["audit", group])
    assert [finding.name for finding in trials.findings_of_group(group)] == seen
    assert f"in {len(seen)} of {len(seen)} known ways" in " ".join(capsys.readouterr().out.split())


def test_a_torch_that_mends_a_finding_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the NaN of its softmax replaced, torch no longer answers two paths in two ways."""
    (finding,) = (each for each in FINDINGS if each.name == "fully-masked-row")
    softmax = torch.nn.functional.softmax

    def safe(*args: Any, **kwargs: Any) -> torch.Tensor:
        return softmax(*args, **kwargs).nan_to_num(nan=0.0)

    assert State.FOUND == reproduce_finding(finding).state
    monkeypatch.setattr(torch.nn.functional, "softmax", safe)
    assert State.MENDED == reproduce_finding(finding).state


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["mha_numpy:MultiheadAttention", "--path", "eval"], "the target is mha_numpy:Multi"),
        (["torch.nn:Linear", "--path", "weights"], "the target is torch.nn:Linear"),
        (["--path", "eval"], "the target is the default target"),
        ([TARGET, "--path", "quick"], "got --path quick, but parity is judged along one path"),
        ([TARGET, "--path", "all"], "`mha-parity audit all` compares paths."),
        ([TARGET, "--path", "fast", "--github"], "`mha-parity audit fast` compares paths."),
    ],
    ids=["another's layer", "another module", "no target", "no path", "a group", "annotations"],
)  # fmt: skip
def test_mistakes_are_refused(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence says what was got and what to ask for; nothing is run; the status is 2."""
    assert 2 == main(["check", *arguments])
    said = capsys.readouterr()
    assert said.out.startswith("::error " if "--github" in arguments else "")
    assert said.out.count("\n") == ("--github" in arguments)
    assert sentence in said.err
    assert 1 == said.err.count("\n")
