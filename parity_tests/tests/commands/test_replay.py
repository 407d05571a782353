"""Replaying a case: the same bits, shown so that a person can read them, or in the debugger."""

from __future__ import annotations

import io
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from mha_parity.__main__ import main
from mha_parity.commands.replay import replay
from mha_parity.core.case import parse
from mha_parity.core.check_result import CheckResult, Place, Severity
from mha_parity.core.options import Options
from mha_parity.core.report_arrays import Comparison
from mha_parity.judging.output import JudgeSettings
from mha_parity.report import case_view, matrices
from mha_parity.run.case_detail import case_detail, first_comparison
from mha_parity.run.case_run import CaseResult, run_case
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from mha_parity.worker.open_target import opened
from subject_checks import SUBJECTS, WRONG

OWN = "mha_numpy:MultiheadAttention"
SMALL = "qkv-N1-L2-S2-H2-D1-unbatched-float64-s0"
LARGER = "qkv-N1-L5-S5-H3-D2-unbatched-float64-s0"
CASES = (
    "mha-N2-L5-S7-H3-D4-cross-padding-floatmask3d-float32-peaky-s1234",
    "mha-N3-L4-S6-H2-D3-cross-bias-outproj-causal-weights-float16-huge-s5",
    "mha-N2-L5-S5-H3-D4-bias-grad-float64-s8",
    "mha-N2-L9-S70-H3-D5-cross-boolmask-avgweights-bfloat16-s2",
    "mha-N2-L5-S5-H3-D4-lengths-maskedrows-float64-s3",
    "mha-N0-L4-S6-H2-D3-cross-float64-s5",
)


def tried(case: str, target: str = WRONG, convention: str | None = None) -> CaseResult:
    """Return the result of one case, in this process."""
    return run_case(bind(load.load(target), convention), parse(case), JudgeSettings())


def shown(case_result: CaseResult, width: int = 80) -> str:
    """Return what a console of that width shows of a trial."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None)
    case_view.print_case(case_detail(case_result, JudgeSettings()), "x:f", console)
    return stream.getvalue()


EXACT = """
qkv-N1-L2-S2-H2-D1-unbatched-float64-s0

 case            1 sample, 2 queries, 2 keys, 2 heads of width 1 · float64
                 unbatched
 query           float64(1,2,2)
                 -0.77091  -0.5003
                 -1.136  -0.69799
 key             float64(1,2,2)
                 -0.73896  0.13229
                 -0.80168  -0.039369
 value           float64(1,2,2)
                 0.076769  0.044743
                 -0.20036  0.10382

output, sample 0, head 0
the target           torch                target − torch
                0                    0                   0
  row 0  -0.06416      row 0  -0.06515      row 0  0.00098
  row 1 [-0.06529]     row 1 [-0.06673]     row 1 [ 0.0014]

error of the output, sample 0, heads 0 to 1 side by side: each element
  · allowed  digit n: up to 10^n times what is allowed, 9: or more  ! no number
  row 0   |9|9|
  row 1   |9|9|

 fails           ✗ output: wrong
                 0.00144, allowed 1.15e-16 (1.25e+13 times), at sample 0, head
                 0, row 1, column 0
                 output is -0.065285867 at sample 0, head 0, row 1, column 0,
                 but should be -0.0667301642; no rounding explains it.

 ✗ x:f fails this case: output.

"""


def test_exact_text() -> None:
    """The smallest case on which a wrong scale shows, letter by letter."""
    assert EXACT == shown(tried(SMALL))


@pytest.mark.parametrize("width", [80, 120], ids="width{}".format)
@pytest.mark.parametrize("case", CASES)
def test_fits_the_width(case: str, width: int) -> None:
    """No line of a replayed case is wider than the window, or ends in blanks."""
    lines = shown(tried(case, OWN), width).splitlines()
    assert [] == [line for line in lines if len(line) > width]
    assert [] == [line for line in lines if line != line.rstrip()]


@pytest.mark.parametrize("case", CASES[:4])
def test_the_worst_number_is_marked(case: str) -> None:
    """One number of each matrix stands in brackets, at the place that the check result names."""
    case_result = tried(case, OWN)
    found = first_comparison(case_result)
    assert found is not None
    actual = float(found.actual[found.worst])
    expected = float(found.expected[found.worst])
    (check_result,) = [each for each in case_result.check_results if each.check == "output"]
    assert check_result.where == found.where
    marked = re.findall(r"\[ *(-?\d[^\]]*)\]", shown(case_result))
    assert [actual, expected] == [pytest.approx(float(text), rel=1e-2) for text in marked[:2]]
    assert abs(actual - expected) == pytest.approx(check_result.error)


def compared(actual: np.ndarray, expected: np.ndarray, worst: tuple[int, int]) -> Comparison:
    """Return the comparison of two matrices of an output."""
    return Comparison(
        title="output",
        actual=actual,
        expected=expected,
        worst=worst,
        fails=True,
        where=Place(0, 0, *worst),
    )


def test_digits_tell_the_worst_difference() -> None:
    """Numbers have as many digits as show three of the worst difference, and no more than 17."""

    def digits(actual: float, expected: float) -> str:
        made = compared(np.array([[actual]]), np.array([[expected]]), (0, 0))
        return matrices.matrix_lines(made, 80)[-1].plain.partition("[")[2].partition("]")[0]

    assert "1.500" == digits(1.5, 1.25)
    assert "1.0000123" == digits(1.0000123, 1.0)
    assert "1.0000000000000002" == digits(1 + 2**-52, 1.0)
    assert "1.2346e+12" == digits(1.23456e12, 1.2e12)[:10]
    assert "0.00" == digits(0.0, 0.0)
    assert "nan" == digits(np.nan, 1.0)


def test_large_matrices_are_shown_around_the_worst_number() -> None:
    """Of 40 rows and 30 columns those around the worst are shown, and what is left out is said."""
    numbers = np.random.default_rng(3).normal(size=(40, 30))
    off = numbers.copy()
    off[37, 29] += 0.5
    made = compared(off, numbers, (37, 29))
    lines = [line.plain for line in matrices.matrix_lines(made, 80)]
    assert re.fullmatch(r"output  10 of 40 rows, columns \d+ to 29 of 30", lines[0])
    assert any(line.startswith("  row 37") and line.endswith("]") for line in lines)
    assert not any(line.startswith("  row 0 ") for line in lines)


def planted(check: str, where: Place) -> tuple[CaseResult, Comparison | None]:
    """Return a case with gradients whose check is said to fail at a place, and its comparison."""
    case_result = tried("mha-N2-L5-S5-H3-D4-bias-weights-floatmask3d-grad-float64-s8", OWN)
    wrong = CheckResult(case=case_result.case, check=check, severity=Severity.WRONG, where=where)
    changed = replace(case_result, check_results=(wrong, *case_result.check_results))
    return changed, first_comparison(changed)


@pytest.mark.parametrize(
    ("check", "where", "index"),
    [
        ("weights", Place(1, 2, 3, 4), (1, 2, 3, 4)),
        ("gradient of query", Place(1, -1, 3, 7), (1, 3, 7)),
        ("gradient of in_proj_weight", Place(-1, 1, 30, 7), (30, 7)),
        ("gradient of in_proj_bias", Place(-1, 1, 30, 0), (30,)),
        ("gradient of attn_mask", Place(1, 2, 3, 4), (5, 3, 4)),
    ],
    ids=lambda value: value.removeprefix("gradient of ") if isinstance(value, str) else "",
)
def test_what_fails_is_what_is_compared(check: str, where: Place, index: tuple[int, ...]) -> None:
    """The number marked is that of the failing array, at the check result's place."""
    case_result, found = planted(check, where)
    assert found is not None
    assert case_result.answer is not None
    name = check.removeprefix("gradient of ")
    array = (
        case_result.answer.weights
        if name == "weights"
        else (case_result.answer.gradients or {})[name]
    )
    assert array is not None
    assert float(array[index]) == float(found.actual[found.worst])
    assert np.abs(found.difference).max() < 1e-12
    assert found.title.startswith(check)


@pytest.mark.parametrize("name", ["returns_complex", "returns_text", "raises"])
def test_answers_without_numbers(name: str) -> None:
    """What is no array of real numbers is not compared; the sentence of the judge is shown."""
    text = shown(tried(SMALL, f"{SUBJECTS}/misbehaving.py:{name}", "qkv-heads"))
    assert "target − torch" not in text
    assert "x:f fails this case" in text


@pytest.mark.parametrize(("target", "case", "status"), [(WRONG, SMALL, 1), (OWN, CASES[0], 0)])
def test_status(target: str, case: str, status: int) -> None:
    """The exit status is 1 where the case fails, 0 where it does not, isolated or not."""
    for in_process in (False, True):
        console = Console(file=io.StringIO(), width=80)
        options = Options(in_process=in_process)
        candidate = opened(target, options)
        assert status == replay(case, candidate, target, options, console, pdb=False)


LAYER = """
from torch import nn

class Attention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.heads = num_heads
        self.qkv, self.proj = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)

    def forward(self, x, key_padding_mask=None):
        n, s, e = x.shape
        q, k, v = (
            t.view(n, s, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1)
        )
        a = q @ k.mT / (e // self.heads) ** 0.5
        if key_padding_mask is not None:
            a = a.masked_fill(key_padding_mask[:, None, None], float("-inf"))
        return self.proj((a.softmax(-1) @ v).transpose(1, 2).reshape(n, s, e))

class Exits(Attention):
    def forward(self, x, key_padding_mask=None):
        if x.shape[1] == 2:
            import os
            os._exit(3)
        return super().forward(x, key_padding_mask)
"""
LAYERS_CALL = """\
layer = {name}(embed_dim=1, num_heads=1)
layer.qkv.weight = [[1.4445], [-0.030155], [-0.35684]]  # float64 (3, 1)
layer.qkv.bias = zeros  # float64 (3,)
layer.proj.weight = [[1.0]]  # float64 (1, 1)
layer.proj.bias = zeros  # float64 (1,)
layer(
    x=query,  # Tensor float64 (1, 2, 1)
    key_padding_mask=[[False, True]],  # Tensor bool (1, 2)
)"""
FUNCTIONS_CALL = """\
f(
    Q=query,  # ndarray float64 (2, 2)
    K=key,  # ndarray float64 (2, 2)
    V=value,  # ndarray float64 (2, 2)
    n_heads=2,
)"""


def shown_call(case: str, target: str, *, in_process: bool = False) -> str:
    """Return the call that ``replay`` shows, without its margin."""
    stream = io.StringIO()
    options = Options(in_process=in_process)
    console = Console(file=stream, width=100, color_system=None)
    replay(case, opened(target, options), target, options, console, pdb=False)
    block = stream.getvalue().partition("\n call  ")[2].partition("\n\n")[0]
    return "\n".join(line.removeprefix(" " * 17) for line in (" " * 7 + block).splitlines())


@pytest.mark.parametrize("in_process", [False, True], ids=["isolated", "here"])
def test_the_call_is_shown(tmp_path: Path, in_process: bool) -> None:
    """How the target was called: constructor, weights, each argument with its shape, small masks.

    A call that ends the process is shown too.
    """
    path = tmp_path / "layer.py"
    path.write_text(LAYER, encoding="utf-8")
    case = "mha-N1-L2-S2-H1-D1-padding-float64-s73"
    names = ["Attention"] if in_process else ["Attention", "Exits"]
    for name in names:
        expected = LAYERS_CALL.format(name=name)
        assert expected == shown_call(case, f"{path}:{name}", in_process=in_process)


def test_the_call_of_a_function_is_shown() -> None:
    """Rows are named by what they are, though the target has other names for them."""
    assert FUNCTIONS_CALL == shown_call(SMALL, WRONG)


def test_the_same_each_time() -> None:
    """An id replayed twice shows the same, letter by letter."""
    assert shown(tried(CASES[0], OWN)) == shown(tried(CASES[0], OWN))


@pytest.mark.parametrize(
    ("case", "target", "sentence"),
    [
        ("nonsense", WRONG, "is no case id"),
        (LARGER.replace("-s0", ""), WRONG, "s missing"),
        (CASES[0], WRONG, "needs form=mha, but .* offers qkv"),
        (SMALL, f"{SUBJECTS}/missing.py:f", "missing.py"),
    ],
    ids=["nonsense", "cut", "not-offered", "no-target"],
)
def test_what_cannot_be_replayed_is_one_sentence(
    case: str, target: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong id, a case that the target does not offer, no target: one sentence, status 2."""
    assert 2 == main(["replay", case, target])
    said = capsys.readouterr()
    assert re.search(sentence, said.err)
    assert (1, "") == (len(said.err.splitlines()), said.out)


def test_options_of_a_run_hold(capsys: pytest.CaptureFixture[str]) -> None:
    """A policy on fully masked rows fails a replayed case as it fails a run."""
    case = "mha-N2-L5-S7-H3-D4-cross-boolmask-maskedrows-float64-s3"
    arguments: list[Any] = ["replay", case, OWN]
    assert 0 == main(arguments)
    named = re.search(
        r"rows that see no key are (\w+)\.", " ".join(capsys.readouterr().out.split())
    )
    assert named is not None
    other = {"nan": "zero"}.get(named[1], "nan")
    assert 1 == main([*arguments, "--fully-masked", other])


@pytest.mark.repeats(1)
@pytest.mark.parametrize(
    "options",
    [
        {"fully_masked": "zero", "features": (("masked_rows", "some"),)},
        {"max_times_torch": 1e-6, "features": (("regime", "normal"),)},
        {"max_times_torch": 1e-6, "features": (("regime", "normal"),), "path": "no-weights"},
    ],
    ids=["fully-masked", "max-times-torch", "path"],
)
def test_the_printed_line_repeats_the_failure(
    options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """What a run was asked for fails a case in its replay too: else the line says it is right."""
    asked = Options(cases=40, in_process=True, diagnose=False, **options)
    with opened("torch.nn:MultiheadAttention", asked) as candidate:
        verdict = check(candidate, asked, target="torch.nn:MultiheadAttention")
    line = verdict.failures[0].replay
    assert line.startswith("mha-parity replay mha-")
    assert 1 == main(shlex.split(line)[1:])
    assert "fails this case" in " ".join(capsys.readouterr().out.split())
