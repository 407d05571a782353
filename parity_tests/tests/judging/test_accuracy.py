"""Errors beside torch's own: what is measured, on which paths, and how it is summed up."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

import mha_torch
from mha_parity.cases.generate import make_problem
from mha_parity.core.arrays import Array
from mha_parity.core.candidate import Answer, FunctionCandidate
from mha_parity.core.case import Case, parse
from mha_parity.core.features import AXES, make_offer
from mha_parity.core.options import Options
from mha_parity.core.problem import Problem
from mha_parity.core.verdict import TARGET
from mha_parity.judging import accuracy
from mha_parity.judging.accuracy import (
    MeasuredError,
    error_over_torch,
    measure_errors,
    torch_output,
)
from mha_parity.oracle.reference import reference_answer
from mha_parity.report.html_page import document as html
from mha_parity.report.json_document import verdict_document
from mha_parity.report.notebook_view import as_text
from mha_parity.run.accuracy_rows import accuracy_table
from mha_parity.run.case_run import CaseResult
from mha_parity.run.check import check
from mha_parity.selftest import accuracy_survey
from mha_parity.selftest.provenance import without_origin
from mha_parity.targets import load
from mha_parity.targets.bind import bind

PLAIN = make_problem(parse("mha-N3-L5-S7-H2-D4-cross-bias-float32-s46"))
CORE = make_problem(parse("qkv-N3-L5-S7-H4-D3-G2-cross-float32-s46"))
FAST = make_problem(parse("mha-N3-L7-S7-H2-D4-bias-outproj-float32-s47"))


@pytest.mark.parametrize("problem", [PLAIN, CORE], ids=["layer", "function"])
def test_torch_is_once_as_accurate_as_itself(problem: Problem) -> None:
    """Torch's own output has the factor 1; one with 64 times its error has at least 8."""
    reference, own = reference_answer(problem), torch_output(problem)
    far = np.asarray(reference.output + 64 * (own - reference.output))

    assert 1 == error_over_torch(problem, reference, own)
    assert error_over_torch(problem, reference, far) > 8


def test_bits_are_those_of_the_largest_number_of_the_worst_head() -> None:
    """An error of 2^-10 of the largest number of head 1 leaves ten bits: head 0 hides nothing."""
    reference = reference_answer(PLAIN)
    output = reference.output.copy()
    output[1, 2, 6] += 2.0**-10 * np.abs(reference.output[1, :, 4:]).max()
    found = {each.contender: each for each in measure_errors(PLAIN, reference, output)}

    assert pytest.approx(10) == found["target"].bits
    assert 20 < found["weights"].bits <= 24
    assert pytest.approx(2 ** (found["weights"].bits - 10)) == found["target"].times_torch


def test_a_head_of_zeros_is_no_error() -> None:
    """Where the right answer is 0 in each element, 0 has all bits right, and a NaN none."""
    nothing = PLAIN.replace(value=np.zeros_like(PLAIN.value), b_v=np.zeros_like(PLAIN.b_v))
    reference = reference_answer(nothing)
    right = measure_errors(nothing, reference, np.zeros(reference.output.shape, np.float32))
    wrong = measure_errors(nothing, reference, np.full(reference.output.shape, np.nan, np.float32))

    assert {(1, 24)} == {(each.times_torch, each.bits) for each in right}
    assert math.isinf(wrong[0].times_torch)
    assert math.isnan(wrong[0].bits)


def flash_takes_grouped_heads() -> bool:
    """Whether torch's flash kernel for the CPU does; it learnt it after 2.8."""
    q, k = np.ones((1, 4, 5, 3)), np.ones((1, 2, 5, 3))
    try:
        mha_torch.scaled_dot_product_attention(q, k, k, enable_gqa=True, backend="flash")
    except mha_torch.PathNotTakenError:
        return False
    return True


@pytest.mark.parametrize(
    ("problem", "paths"),
    [
        (PLAIN, {"no-weights", "sdpa-math", "sdpa-flash"}),
        (FAST, {"no-weights", "fast", "sdpa-math", "sdpa-flash"}),
        (CORE, {"no-weights", "sdpa-flash"}),
    ],
    ids=["cross", "self", "function"],
)
def test_torchs_paths_are_measured_where_they_are_taken(problem: Problem, paths: set[str]) -> None:
    """The pinned path is 1 by definition; the others are near it; what is not taken is left out."""
    if problem is CORE and not flash_takes_grouped_heads():
        paths = paths - {"sdpa-flash"}
    reference = reference_answer(problem)
    found = {
        e.contender: e
        for e in measure_errors(
            problem, reference, torch_output(problem), paths=accuracy.TORCH_PATHS
        )
    }

    assert set(found) == {"target", "weights"} | paths
    assert found["weights"].times_torch == found["target"].times_torch == 1
    assert all(1 / 16 < each.times_torch < 16 for each in found.values())


def test_a_causal_rule_with_appended_keys_is_spelt_out_for_torchs_paths() -> None:
    """Without weights torch's causal hint hides the keys of bias_kv: a mask has no such bug."""
    problem = make_problem(parse("mha-N2-L6-S7-H2-D3-cross-biaskv-causal-float32-s48"))
    reference = reference_answer(problem)
    found = {
        e.contender: e
        for e in measure_errors(problem, reference, reference.output, paths=accuracy.TORCH_PATHS)
    }

    assert {"weights", "no-weights"} <= set(found)
    assert all(each.times_torch < 16 for each in found.values())


def case_result(case: Case, *times: float) -> CaseResult:
    """Return a trial with these ratios for the target and for torch's own path."""
    found = tuple(
        MeasuredError(name, ratio, 20.0)
        for name, ratio in zip(("target", "weights"), times, strict=True)
    )
    return CaseResult(case=case, check_results=(), measured=found)


def test_a_row_has_median_worst_and_bits() -> None:
    """Factors 1, 2 and 8: median 2, worst 8, one bit lost in the median; NaN is left out."""
    row = accuracy.accuracy_row(
        "float32", [MeasuredError("target", t, 20.0) for t in (1.0, 8.0, 2.0, math.nan)]
    )

    assert row is not None
    assert (3, 2, 8, 1) == (row.cases, row.median_times_torch, row.worst_times_torch, row.bits_lost)
    assert 20 == row.bits_right
    assert accuracy.accuracy_row("float32", []) is None


def test_the_table_has_a_row_for_each_contender_dtype_and_feature() -> None:
    """Features that vary among measured cases have rows of their own cases; others have none."""
    plain = PLAIN.case
    peaky = plain.replace(regime="peaky", seed=1)
    rows = accuracy_table([case_result(plain, 2.0, 1.0), case_result(peaky, 8.0, 1.0)])
    found = {(row.contender, row.axis, row.value): row.median_times_torch for row in rows}

    assert {
        ("target", "", ""): 5,
        ("weights", "", ""): 1,
        ("target", "regime", "normal"): 2,
        ("weights", "regime", "normal"): 1,
        ("target", "regime", "peaky"): 8,
        ("weights", "regime", "peaky"): 1,
    } == found
    assert {"float32"} == {row.dtype for row in rows}


OFFERED = MappingProxyType(
    make_offer(
        inputs=("self", "cross"), bias=("no", "yes"), attn=("none", "causal"), dtype="float32",
        size="small", regime="normal",
    )
)  # fmt: skip


def blurred(factor: float) -> FunctionCandidate:
    """Return a candidate with `factor` times torch's error."""

    def answer(problem: Problem) -> Answer:
        reference, own = reference_answer(problem).output, torch_output(problem)
        return Answer(output=own if factor == 1 else _blurred(reference, own, factor))

    return FunctionCandidate("blurred", answer, dict(OFFERED))


def _blurred(reference: Array, own: Array, factor: float) -> Array:
    return np.asarray(reference + factor * (own - reference)).astype(own.dtype)


@pytest.mark.parametrize("factor", [1, 3])
def test_a_run_measures_the_target_beside_torchs_paths(factor: int) -> None:
    """A candidate with three times torch's error has about 3 in the table, torch itself has 1."""
    found = check(blurred(factor), Options(cases=64, seed=3))
    rows = {(row.contender, row.axis): row for row in found.accuracy_table}
    (target,) = found.accuracy

    assert pytest.approx(factor, rel=0.25) == target.median_times_torch
    assert rows["target", ""].median_times_torch == target.median_times_torch
    assert 1 == rows["weights", ""].median_times_torch
    assert 4 == rows["no-weights", ""].cases
    assert {"inputs", "bias", "attn"} <= {axis for _, axis in rows}


def test_worst_counts_what_was_looked_at_for_being_bad() -> None:
    """A candidate less accurate in cases that were not drawn to be measured shows in the worst."""
    bound = bind(load.load("mha_numpy:MultiheadAttention"))
    found = check(bound, Options(cases=60))
    for row in found.accuracy:
        assert row.worst_times_torch >= row.median_times_torch


def test_many_cases_are_summed_up_by_dtype_and_feature() -> None:
    """Each dtype has a row for the target, one for torch's other path, and rows by feature."""
    drawn = [PLAIN.case.replace(seed=seed) for seed in range(6)]
    drawn.append(drawn[0].replace(regime="peaky"))
    found = list(
        accuracy_survey.survey_rows("float32", accuracy_survey.surveyed_errors(blurred(3), drawn))
    )
    whole = {row.contender: row for row in found if not row.feature}
    peaky = next(row for row in found if row.feature == "regime=peaky")

    assert (7, 7) == (whole["target"].cases, whole["no-weights"].cases)
    assert pytest.approx(3, rel=0.25) == whole["target"].median
    assert 1 == whole["target"].above2
    assert whole["no-weights"].worst < 16
    assert (1, drawn[-1].id) == (peaky.cases, peaky.worst_case)


def test_the_figures_are_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints the table that it writes, and the rows as JSON beside it."""
    accuracy_survey.main(["--cases", "12", "--dtype", "float32", "--to", str(tmp_path)])
    written = (tmp_path / "accuracy.md").read_text("utf-8")
    rows = json.loads((tmp_path / "accuracy.json").read_text("utf-8"))["rows"]

    assert without_origin(written) in capsys.readouterr().out
    assert re.search(r"Made by `make accuracy .*--cases 12 --seed 2'` on \d{4}-", written)
    assert {"target", "flash", "no-weights"} == {row["contender"] for row in rows}
    assert "| float32 | the target |" in written


def test_the_reports_show_the_table() -> None:
    """Terminal, page and JSON tell bits, torch's paths and features of one and the same run."""
    found = check(blurred(3), Options(cases=64, seed=3))
    text, page = as_text(found, verbose=True), html([found])
    document = verdict_document(found)["accuracy"]["float32"]
    own = document["median_times_torch"]
    other = document["torch"]["no-weights"]["median_times_torch"]

    worst, bits = document["worst_times_torch"], document["bits_right"]
    assert f"float32 {own:.2f} {worst:.2f} {bits:.1f} " in " ".join(text.split())
    assert re.search(rf"no-weights +{other:.2f}\n", text)
    assert re.search(r"least accurate +\S", text)
    assert f'<td class="number">{own:.2f}</td>' in page
    assert '<th scope="row">no-weights</th>' in page
    assert ">causal</th>" in page
    assert document["features"]["attn=causal"]["cases"] > 0
    assert {"weights"} == set(document["features"]["attn=causal"]["torch"])


def published() -> list[accuracy_survey.SurveyRow]:
    """Return the published figures."""
    found = json.loads((accuracy_survey.DATA / "accuracy.json").read_text("utf-8"))
    rows = [accuracy_survey.SurveyRow(**row) for row in found["rows"]]
    shown = (accuracy_survey.DATA / "accuracy.md").read_text("utf-8")
    assert accuracy_survey.survey_markdown(found["target"], rows).rstrip() == without_origin(shown)
    return rows


PUBLISHED = MappingProxyType(
    {"float64": 9_000, "float32": 9_000, "float16": 4_500, "bfloat16": 4_500}
)
"""Cases of each dtype that the published figures rest on at least."""


@pytest.mark.parametrize("dtype", AXES["dtype"])
def test_the_published_errors_are_torchs_own_in_the_median(dtype: str) -> None:
    """Over the published cases of a dtype the NumPy layer's error is at most torch's in the median.

    In 99 % of the cases it is at most three times as large, and in 16 bits it never is larger.
    """
    rows = {row.contender: row for row in published() if row.dtype == dtype and not row.feature}
    ours, control = rows["target"], rows["no-weights"]

    assert ours.cases >= PUBLISHED[dtype]
    assert ours.median <= 1
    assert ours.percentile99 <= 3
    if dtype in {"float16", "bfloat16"}:
        assert ours.worst <= 1
    if ours.above2 > 2 * control.above2:
        pytest.xfail(
            f"{ours.above2:.1%} of the errors are above twice torch's, where "
            f"{2 * control.above2:.1%} should be the most"
        )


@pytest.mark.parametrize(("times", "bits"), [(0.5, -1.0), (1.0, 0.0), (8.0, 3.0), (0.0, math.inf)])
def test_lost_bits_are_the_logarithm_of_the_median_ratio(times: float, bits: float) -> None:
    """Fewer than none where an error is below torch's. Kills 1 for 0 as the least ratio."""
    row = accuracy.accuracy_row("float32", [MeasuredError(TARGET, times, 20.0)])
    assert row is not None
    assert bits == row.bits_lost
