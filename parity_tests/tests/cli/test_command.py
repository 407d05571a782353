"""The command's border: one sentence and status 2 for every mistake, the verdict's status else."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mha_parity import cli
from mha_parity.__main__ import entry, main
from mha_parity.command_line import GROUPS, parser
from mha_parity.commands import check as checking
from mha_parity.core.errors import UsageError
from mha_parity.run import case_run, chunks
from subject_checks import SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LAYER_CASE = "mha-N3-L67-S67-H4-D6-bias-boolmask-avgweights-float32-widerange-s98"
EXAMPLE = re.compile(r"  mha-parity \S.*")
Said = tuple[int, str, str]  # exit status, output, errors

MISTAKES = {
    "chekc": r"got 'chekc'; did you mean check\?",
    "projected.py:f": r"did you mean mha-parity check projected\.py:f\? See",
    "check nowhere:f": r"no module 'nowhere'; install it",
    "check mha_numpy": r"'mha_numpy', but should be `package\.module:name`",
    "check projected": r"`package\.module:name`, .*; did you mean projected\.py\?",
    "check torch.nn.Linear": r"; did you mean torch\.nn:Linear\?",
    "check .": r"'\.', which is a folder, but should be `package",
    "check projected.py": r"it; name one of softmax, .*, as in: mha-parity check projected\.py:\w",
    "check attention.ipynb": r"a class in it; name one of .*: mha-parity check attention\.ipynb:\w",
    "check ''": r"'', which is empty, but should be `package",
    "check empty.ipynb": r"whose cells define no public function and no class",
    "check ./wrong:f": r"but \./wrong is a folder; name a file in it",
    "check missing.py:f": r"no file missing\.py",
    "check missing.ipynb:f": r"no file missing\.ipynb",
    "check projected.py:g": r"but projected\.py has no attribute 'g'; it has f, ",
    "check attention.ipynb:g": r"no attribute 'g'; it has f, ",
    "check numpy:pi": r"of type float, but should be a function or a class",
    "check --convention qvk projected.py:f": r"no such one; did you mean 'qkv'\?",
    "check --cases 0": r"--cases: got '0', but should be a whole number from 1 up",
    "check --cases many": r"--cases: got 'many', but should be a whole number from 1 up",
    "check --seed -1": r"--seed: got '-1', but should be a whole number from 0 up",
    "check --dtypes float31": r"--dtypes: got 'float31', .*; did you mean 'float32'\? See",
    "check --features sideways=yes": r"'sideways', but no such feature axis; known are form",
    "check --features attn=caussal": r"'caussal', but no such value of attn; did you mean 'causal'",
    "check --features attn": r"--features: got 'attn', but should be AXIS=VALUE",
    "check --features bias=yes projected.py:f": r"bias=yes .*, but the target offers only bias=no",
    "check --timeout 0": r"--timeout: got '0', but should be a number above 0",
    "check --memory nan": r"--memory: got 'nan', but should be a number above 0",
    "check --fully-masked maybe": r"got 'maybe', .*; known are nan, zero, uniform",
    "check --sideways": r"got --sideways, which is no option .*; see mha-parity check",
    "check --json nowhere/x.json": r"there is no folder nowhere; make it",
    "check --junit nowhere/x.xml": r"there is no folder nowhere; make it",
    "check --html nowhere/x.html": r"there is no folder nowhere; make it",
    "replay": r"the following arguments are required: CASE",
    "replay nonsense": r"`nonsense` is no case id",
    f"replay a.py:f {LAYER_CASE}": rf"case comes first: mha-parity replay {LAYER_CASE} a\.py:f\.",
    f"replay {LAYER_CASE} missing.py:f": r"no file missing\.py",
    f"replay {LAYER_CASE} projected.py:f": r"needs form=mha, but projected\.py:f offers qkv",
    "explain nothing": r"got the bug 'nothing', but the catalogue has no such one",
    "check --caess 3": r"got --caess, .* did you mean --cases\?",
    "list colours": r"got 'colours'; known are conventions, features",
}


@pytest.fixture
def said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Said]:
    """Run a command line where the subjects are; return its status and what it wrote."""
    monkeypatch.chdir(SUBJECTS)

    def run(line: str) -> Said:
        try:
            status = main(shlex.split(line))
        except SystemExit as left:
            status = int(left.code or 0)
        return status, *capsys.readouterr()

    return run


@pytest.mark.parametrize(("line", "sentence"), MISTAKES.items(), ids=MISTAKES)
def test_a_mistake_is_one_sentence(said: Callable[[str], Said], line: str, sentence: str) -> None:
    """A mistake costs one sentence with what was got and the remedy, status 2, no traceback."""
    status, output, errors = said(line)
    assert (2, "") == (status, output)
    assert 1 == len(errors.splitlines())
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
    assert 3 == status, output
    assert "Parity holds" not in output


@pytest.mark.parametrize(
    "targets", ["projected.py:f wrong_scale.py:f", "wrong_scale.py:f projected.py:f"]
)
def test_the_worst_of_several_targets_decides(said: Callable[[str], Said], targets: str) -> None:
    """Two targets in one call are both judged; one that fails, first or last, leaves with 1.

    The end of the output has a line for each.
    """
    status, output, _ = said(f"check {targets} --in-process --cases 20")
    assert 1 == status
    signs = [line[:2] for line in output.splitlines() if line.startswith((" ✓ P", " ✗ P"))]
    assert [" ✓" if "projected" in each else " ✗" for each in targets.split()] == signs[-2:]
    assert "projected.py:f equals torch" in output
    assert "wrong_scale.py:f" in output


@pytest.mark.parametrize(
    ("others", "status"), [("projected.py:f", 2), ("wrong_scale.py:f", 1), ("wrong_ones.py:g", 2)]
)
def test_a_refused_target_ends_no_others(
    said: Callable[[str], Said], others: str, status: int
) -> None:
    """The line of a refused target says so; the others are judged, and the worst decides."""
    found, output, errors = said(f"check no.py:f {others} --in-process --cases 20")
    assert status == found
    assert ("wrong_ones" in others) or others in output
    assert "mha-parity: refused: got the target 'no.py:f', but there is no file" in errors


def test_a_target_that_is_nowhere_is_said_before_another_is_judged(
    said: Callable[[str], Said], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A space in place of the colon is said at once, and not after minutes of the first target."""
    seen_before = []

    def judged(*_given: object) -> None:
        seen_before.append(capsys.readouterr().err)
        raise UsageError("got enough.")

    monkeypatch.setattr(checking, "judge_target", judged)
    said("check projected.py:f f")
    (errors,) = seen_before
    assert errors.startswith("mha-parity: refused: got the target 'f', but should be")


def test_lists_have_a_line_for_each_entry_in_a_pipe(said: Callable[[str], Said]) -> None:
    """What is longer than a terminal's width is not wrapped where grep reads it."""
    _, output, _ = said("list bugs")
    lines = output.splitlines()
    assert max(map(len, lines)) > 80
    assert all(re.match(r" [a-z0-9-]+  +\S", line) for line in lines)


def test_an_empty_notebook_is_named_as_such(said: Callable[[str], Said], tmp_path: Path) -> None:
    """A notebook without a definition is one sentence that says so."""
    empty = tmp_path / "empty.ipynb"
    empty.write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', "utf-8")
    status, _, errors = said(f"check {empty}:f")
    assert 2 == status
    assert errors.endswith("but empty.ipynb defines no public function and no class; write one.\n")


def test_the_bare_command_shows_what_there_is(said: Callable[[str], Said]) -> None:
    """Without a subcommand there are examples and every subcommand, and status 0."""
    status, output, errors = said("")
    assert (0, "") == (status, errors)
    for name in ("check", "identify", "replay", "bench", "mutants", "explain", "list"):
        assert re.search(rf"^    {name} +\w", output, flags=re.MULTILINE), name
    assert "mha-parity check attention.py:attention" in output


@pytest.mark.parametrize("width", [60, 80])
def test_help_fits_the_terminal(
    said: Callable[[str], Said], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line of any help is wider than the terminal, but for a command that is shown whole."""
    monkeypatch.setenv("COLUMNS", str(width))
    for line in ("", "list", *(f"{name} --help" for name in cli.COMMANDS)):
        status, output, _ = said(line)
        assert 0 == status
        wide = [text for text in output.splitlines() if len(text) > width]
        assert [] == [text for text in wide if width == 80 or not EXAMPLE.fullmatch(text)], line


def test_a_narrow_example_has_its_words_below(
    said: Callable[[str], Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 60 columns what a command does stands on the line after it, and nothing is lost."""
    texts = []
    for width in (60, 80):
        monkeypatch.setenv("COLUMNS", str(width))
        texts.append(said("")[1])
    assert "  mha-parity merge shard*.json\n    one verdict of check --shard\n" in texts[0]
    assert texts[0].split() == texts[1].split()


def test_the_bare_list_counts_what_there_is(said: Callable[[str], Said]) -> None:
    """Without a name each list is given by its command, with as many entries as it has."""
    status, output, _ = said("list")
    found = re.findall(r"^ mha-parity list (\w+) +(\d+) ", output, flags=re.MULTILINE)
    names = ["conventions", "features", "bugs", "variants"]
    assert (0, names) == (status, [name for name, _ in found])
    for name, count in found:
        assert int(count) == len(re.findall(r"^ \S", said(f"list {name}")[1], flags=re.MULTILINE))


def test_help_of_check_has_groups(said: Callable[[str], Said]) -> None:
    """Every option of check but --help stands in a named group; examples end the page."""
    status, output, _ = said("check --help")
    loose = output.partition("\noptions:")[2].partition("\n\n")[0]
    assert 0 == status
    assert ["-h, --help"] == re.findall(r"^  (-.*?)(?:  |$)", loose, flags=re.MULTILINE)
    for title in GROUPS:
        assert f"\n{title}:\n" in output
    assert "\nexamples:\n" in output


def test_every_group_names_options_that_exist() -> None:
    """No group names an option that ``check`` does not have."""
    known = {name.replace("_", "-") for name in vars(parser().parse_args(["check"]))}
    assert {name for names in GROUPS.values() for name in names} <= known


@pytest.mark.parametrize(
    "target", [pytest.param("projected.py:f", marks=pytest.mark.slow), "wrong_scale.py:f"]
)
def test_a_closed_pipe_loses_nothing(target: str, tmp_path: Path) -> None:
    """A reader that has gone changes no status, breaks no file, and writes no error."""
    page = tmp_path / "verdict.json"
    command = Path(sys.executable).parent / "mha-parity"
    arguments = ["check", target, "--in-process", "--cases", "12", "--json", str(page)]
    with subprocess.Popen(
        [command, *arguments], cwd=SUBJECTS, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read().decode()
    document = json.loads(page.read_text(encoding="utf-8"))
    expected = {"pass": 0, "fail": 1, "inconclusive": 3}[document["outcome"]]
    assert (expected, "") == (process.returncode, errors)


def test_an_interrupt_says_how_far_it_came(
    said: Callable[[str], Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the seventh case leaves with 130 and one line that counts the cases."""
    judge = case_run.run_cases

    def stopping(*arguments: Any) -> Iterator[Any]:
        for number, result in enumerate(judge(*arguments)):
            if number == 6:
                raise KeyboardInterrupt
            yield result

    monkeypatch.setattr(chunks, "run_cases", stopping)
    status, output, errors = said("check projected.py:f --in-process --cases 20")
    assert (130, "") == (status, output)
    assert "mha-parity: interrupted while judging projected.py:f: 6 of 20 cases\n" == errors


def test_an_interrupt_before_the_first_case(
    said: Callable[[str], Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the target is opened leaves with 130 as well, and names the phase."""

    def stopping(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(checking, "opened", stopping)
    status, _, errors = said("check projected.py:f")
    assert (130, "mha-parity: interrupted while starting projected.py:f\n") == (status, errors)


def test_the_installed_command_behaves_alike() -> None:
    """The console script, in a process of its own, leaves with 2 and one sentence too."""
    command = Path(sys.executable).parent / "mha-parity"
    done = subprocess.run(
        [command, "check", "nowhere:f"], capture_output=True, text=True, check=False
    )
    assert 2 == done.returncode
    assert "no module 'nowhere'" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_the_version_is_the_distributions(said: Callable[[str], Said]) -> None:
    """`--version` prints the version that the distribution carries."""
    from importlib.metadata import version

    status, output, _ = said("--version")
    assert (status, output) == (0, f"mha-parity {version('mha-parity')}\n")


def test_an_error_of_the_command_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1 says that parity does not hold: an error of the command itself ends with 2."""

    def broken(_: object) -> int:
        raise RuntimeError("planted")

    monkeypatch.setattr(cli, "COMMANDS", {"list": broken})
    monkeypatch.setattr(sys, "argv", ["mha-parity", "list"])
    assert 2 == entry()
    said = capsys.readouterr().err
    assert "RuntimeError: planted" in said
    assert said.endswith("with the command and the target.\n")


def test_a_mistake_in_the_harness_is_none_of_the_target(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """NumPy's ValueError out of the harness itself is no refusal: the traceback is shown."""
    monkeypatch.chdir(SUBJECTS)
    monkeypatch.setattr(case_run, "judge_answer", lambda *_: np.ones(2) + np.ones(3))
    words = ["mha-parity", "check", "projected.py:f", "--in-process", "--cases", "2"]
    monkeypatch.setattr(sys, "argv", words)
    assert 2 == entry()
    said = capsys.readouterr().err
    assert "ValueError: operands could not be broadcast" in said
    assert "please report the lines above" in said


def test_a_report_that_cannot_be_written_costs_no_verdict(said: Callable[[str], Said]) -> None:
    """The verdict is printed, and one sentence says which file is missing: status 2."""
    status, output, errors = said("check projected.py:f --in-process --cases 40 --json /dev/full")
    assert (2, 1) == (status, len(errors.splitlines()))
    assert "Parity holds" in output
    assert "/dev/full cannot be written: No space left on device" in errors


def test_a_mistake_of_merging_is_annotated(said: Callable[[str], Said]) -> None:
    """``merge`` has files and no targets: the annotation has no place."""
    status, output, errors = said("merge nofile.json --github")
    assert (2, "::error title=mha-parity::got nofile.json,") == (status, output[:42])
    assert 1 == len(errors.splitlines())


@pytest.mark.parametrize("name", ["check", "replay", "bench"])
def test_help_breaks_no_name_at_a_hyphen(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that ends in a hyphen would split an option or a value, such as sdpa-math."""
    for width in (60, 80, 100):
        monkeypatch.setenv("COLUMNS", str(width))
        with pytest.raises(SystemExit):
            main([name, "--help"])
        lines = capsys.readouterr().out.splitlines()
        assert [] == [line for line in lines if re.search(r"\w-$", line)]
