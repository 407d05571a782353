"""A program of any language is judged as a Python target is, and costs a case and never the run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.__main__ import main
from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import Answer
from mha_parity.core.case import Case
from mha_parity.core.options import Options
from mha_parity.core.problem import INPUTS
from mha_parity.core.verdict import Verdict
from mha_parity.judging.output import JudgeSettings
from mha_parity.run.case_run import run_cases
from mha_parity.run.check import check
from mha_parity.targets.bind import bind
from mha_parity.worker.client import isolated

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parents[2]
CLIENTS = TESTS.parent / "examples" / "clients"
PROTOCOL_PAGE = TESTS.parent / "docs" / "reference" / "exec-protocol.md"
PYTHON = f"exec:{sys.executable} {TESTS.parent / 'subjects' / 'command.py'}"
FILES = "{requests} {answers}"  # a program with these is started once a chunk
FIVE = Case(
    seed=0, batch=2, queries=5, keys=7, heads_count=2, head_dim=3, form="qkv", projection="none",
    inputs="cross", weights="per_head",
)  # fmt: skip
FOUR = FIVE.replace(queries=4, seed=1)
SIX = FIVE.replace(queries=6, seed=2)

# What the failing case says of each: its severity, and in words.
MISDEEDS = {
    "exits": ("crash", "ended its process with exit status 3\nIt printed last:\nout of order"),
    "aborts": ("crash", "ended its process by signal SIGABRT"),
    "hangs": ("timeout", "gave no answer within 3 seconds"),
    "half": ("crash", "ended its process with exit status 0"),
    "prints": ("structure", "begins with b'computin', which is no length: print to standard error"),
    "header": ("structure", "the block that it answered has a header that is no JSON"),
    "holes": ("structure", "the block that it answered has 376 bytes of `output`, but"),
    "foreign": ("structure", "has the protocol 'other/2', but should have 'mha-parity-exec/1'"),
    "nothing": ("structure", "answered no array, but should answer `output`"),
    "shape": ("structure", r"output has the shape \(2, 3, 6\), but should have \(2, 4, 6\)"),
    "error": ("crash", "answered the error 'four queries are too many'"),
    "wrong": ("wrong", "no rounding explains it"),
}


def judged(command: str, cases: int, **changes: object) -> Verdict:
    """Return the verdict on a command in a worker process."""
    options = Options(cases=cases, **changes)  # type: ignore[arg-type]  # fields vary in type
    with isolated(command, timeout=60.0) as candidate:
        return check(candidate, options, target=command)


def fails(verdict: Verdict) -> list[str]:
    """Return the sentences of the failures."""
    return [failure.check_result.detail for failure in verdict.failures]


def test_a_right_program_passes_with_all_that_it_offers() -> None:
    """Weights, biases, masks, lengths and attention weights arrive at a program as they should."""
    verdict = judged(PYTHON, 80)
    assert [] == fails(verdict)
    offered = {f"{r.axis}={r.value}" for r in verdict.features if r.status == "pass"}
    assert {"form=mha", "padding=lengths", "attn=float2d", "out_proj=general"} <= offered


def test_a_program_is_sent_nothing_that_it_does_not_offer() -> None:
    """It ends at rows of integers, and at keys and values of different lengths: none are sent."""
    verdict = judged(f"{PYTHON} strict", 40, dtypes=("float64",))
    assert [] == fails(verdict)


def test_gradients_of_a_program_are_judged() -> None:
    """The cotangent goes to a program, and gradients by name come back."""
    verdict = judged(PYTHON, 24, grad=True, features=(("form", "qkv"),))
    assert [] == fails(verdict)
    assert {"gradient of query", "gradient of attn_mask"} <= {row.name for row in verdict.checks}


def _ways() -> Iterator[object]:
    """Yield each misdeed over pipes, and over files one of each kind."""
    for name, (severity, said) in MISDEEDS.items():
        yield pytest.param(name, severity, said, "", id=name)
        if name in {"exits", "hangs", "prints"}:
            yield pytest.param(name, severity, said, FILES, id=f"{name}, files")


@pytest.mark.repeats(3)
@pytest.mark.parametrize(("name", "severity", "said", "files"), list(_ways()))
def test_a_misdeed_is_that_case_s_failure(name: str, severity: str, said: str, files: str) -> None:
    """The case fails with one sentence, and the cases around it pass; so in a chunk of files."""
    timeout = 3.0 if name == "hangs" else 60.0
    # A program of files is started for each request: at these places no further calls are made.
    cases = [case.replace(seed=209 + case.seed) if files else case for case in (FIVE, FOUR, SIX)]
    with isolated(f"{PYTHON} {name} {files}", timeout=timeout) as candidate:
        before, failing, after = run_cases(candidate, cases, JudgeSettings())
    assert (False, False) == (before.fails, after.fails)
    found = next(each for each in failing.check_results if each.severity.fails)
    assert severity == found.severity.value
    with pytest.raises(AssertionError, match=f"(?s){said}"):
        raise AssertionError(found.detail)


def test_a_program_of_files_is_started_once_a_chunk(tmp_path: Path) -> None:
    """Requests that come together go into one file: fewer starts than requests, equal verdicts."""
    starts = tmp_path / "starts"
    script = tmp_path / "count.sh"
    script.write_text(f'echo >> {starts}\nexec {PYTHON.removeprefix("exec:")} "" "$1" "$2"\n')
    cases = [FIVE.replace(seed=number) for number in range(200, 224)]
    with isolated(f"exec:sh {script} {FILES}", timeout=60.0) as candidate:
        problems = [make_problem(case).replace(single_call=True) for case in cases]
        answers = list(candidate.many(problems))
    with isolated(PYTHON, timeout=60.0) as candidate:
        for answer, other in zip(answers, candidate.many(problems), strict=True):
            assert isinstance(answer, Answer)
            assert isinstance(other, Answer)
            np.testing.assert_array_equal(answer.output, other.output)
    assert len(starts.read_text().splitlines()) < len(cases) / 2


def test_a_program_that_takes_memory_is_ended() -> None:
    """The memory of a program counts as that of its worker."""
    with isolated(f"{PYTHON} grows", timeout=60.0, memory=2**28) as candidate:
        (failing,) = run_cases(candidate, (FOUR,), JudgeSettings())
    assert "GiB of memory" in failing.check_results[0].detail


REFUSED = {
    "./nowhere": "but No such file or directory; it should start",
    "true": "but it ended with status 0 before it answered; it",
    "'": "but No closing quotation; it",
    "cat": "but no feature request=offer; known here: form",
    f"{PYTHON.removeprefix('exec:')} boasts": "no feature attn=sideways; known here: none",
}


@pytest.mark.parametrize(("command", "sentence"), REFUSED.items(), ids=range(len(REFUSED)))
def test_a_command_that_is_no_client_is_one_sentence(
    command: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be started or does not speak the protocol leaves with 2 and one sentence."""
    assert 2 == main(["check", "--exec", command])
    errors = capsys.readouterr().err
    assert (1, True) == (len(errors.splitlines()), sentence in errors), errors


def test_options_that_do_not_reach_a_program_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """--in-process and --forbid are refused: a program has its own process, and its own modules."""
    for words in (["--in-process"], ["--forbid", "torch"]):
        assert 2 == main(["check", "--exec", "true", *words])
        said = capsys.readouterr().err
        assert re.search(r"which --in-process .* do not reach; leave them out\.\n$", said)


def test_the_convention_of_programs_asks_programs_alone() -> None:
    """--convention exec with a function of Python is refused."""
    with pytest.raises(ValueError, match="the convention exec asks a command; name it by --exec"):
        bind(len, "exec")


def test_the_replay_line_of_a_program_is_quoted() -> None:
    """The line that a report prints is one that a shell takes: its last word is the target."""
    verdict = judged(f"{PYTHON} wrong", 80, features=(("form", "qkv"),), diagnose=False)
    lines = {failure.replay.partition(" 'exec:")[2] for failure in verdict.failures}
    assert {f"{PYTHON.removeprefix('exec:')} wrong'"} == lines
    assert {4} == {f.case.queries for f in verdict.failures if f.shrunk_from}


def test_the_page_names_what_is_sent() -> None:
    """The page on the protocol has every array and every option of a request."""
    from mha_parity.targets.programs.exec_protocol import MORE, options

    page = PROTOCOL_PAGE.read_text(encoding="utf-8")
    names = (
        *INPUTS,
        *MORE,
        *options(make_problem(FIVE)),
        "valid_lens",
        "cotangent",
        "weights",
        "gradient.NAME",
    )
    assert [] == [name for name in names if f"`{name}`" not in page]


def built(language: str, folder: Path) -> str:
    """Return the command of the client in a language; skip where its compiler is missing."""
    tool = {"c": "gcc", "rs": "rustc", "mjs": "node"}[language]
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed; `apt install {tool}` does")
    source, binary = str(CLIENTS / f"attention.{language}"), str(folder / "attention")
    if language == "mjs":
        return f"exec:node {source}"
    options = ["-Wall", "-Werror"] if language == "c" else ["--edition", "2021"]
    subprocess.run(
        [tool, "-O", *options, "-o", binary, source, *["-lm"][: tool == "gcc"]], check=True
    )
    return f"exec:{binary}"


LANGUAGES = [
    "c",
    pytest.param("rs", marks=pytest.mark.languages),
    pytest.param("mjs", marks=pytest.mark.languages),
]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_client_is_right_and_its_bug_is_named(language: str, tmp_path: Path) -> None:
    """A client of at most 150 lines passes; with a wrong scale it fails, and the scale is named."""
    command = built(language, tmp_path)
    assert len((CLIENTS / f"attention.{language}").read_text().splitlines()) <= 150
    assert [] == fails(judged(command, 80))
    wrong = judged(f"{command} wrong", 60, shrink=False)
    assert not wrong.holds
    assert "the effective scale is 1/sqrt(E)" in wrong.diagnosis[0].title
