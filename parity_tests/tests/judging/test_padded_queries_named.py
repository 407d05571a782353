"""Rows of padded queries are named where they are others than torch's, and judged where asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import Answer
from mha_parity.core.case import Case, parse
from mha_parity.core.check_result import PADDED_QUERIES, Severity
from mha_parity.core.verdict import Outcome
from mha_parity.judging.output import DEFAULT_SETTINGS, JudgeSettings, judge_answer
from mha_parity.oracle.reference import reference_answer
from mha_parity.run.case_run import run_case
from mha_parity.targets.bind import bind
from subject_checks import checks_of, load_subject

if TYPE_CHECKING:
    from mha_parity.core.problem import Problem

judged = checks_of("padded_rows.py", cases=60)
SELF = Case(
    seed=11, batch=3, queries=6, keys=6, heads_count=2, head_dim=3, form="mha", projection="packed",
    padding="bool",
)  # fmt: skip
STRICT = JudgeSettings(strict_padding=True)
ONE_LENGTH = JudgeSettings(one_length=True)


def results(
    problem: Problem, output: np.ndarray, settings: JudgeSettings = DEFAULT_SETTINGS
) -> dict[str, Severity]:
    """Return the severity of each check of an output."""
    found = judge_answer(problem, reference_answer(problem), Answer(output=output), settings)
    return {each.check: each.severity for each in found}


def with_rows(problem: Problem, value: float, *, of_padded: bool = True) -> np.ndarray:
    """Return the right output with another value in the rows of padded queries, or in the others.

    Of the others the first alone.
    """
    output = reference_answer(problem).output.astype(problem.dtype).copy()
    padding = problem.key_padding_mask
    assert padding is not None
    assert padding.any()
    if of_padded:
        output[padding] = value
    else:
        output[tuple(np.argwhere(~padding)[0])] = value
    return output


@pytest.mark.parametrize("value", [0.0, 7.0, np.nan])
def test_other_rows_of_padded_queries_are_named(value: float) -> None:
    """Kills a red verdict on rows that no one reads; held to torch's they fail."""
    problem = make_problem(SELF)
    output = with_rows(problem, value)
    assert {"output": Severity.MATCH, PADDED_QUERIES: Severity.MATCH} == results(problem, output)
    assert Severity.WRONG is results(problem, output, STRICT)["output"]


def test_rows_of_other_queries_are_judged() -> None:
    """Kills a judge that leaves out whole samples with padding."""
    problem = make_problem(SELF)
    assert Severity.WRONG is results(problem, with_rows(problem, 0.0, of_padded=False))["output"]


def test_padded_keys_of_other_queries_are_no_padded_queries() -> None:
    """Of another input the mask says nothing; where the target takes one length of both it does."""
    crossed = make_problem(SELF.replace(inputs="cross"))
    assert crossed.query is not crossed.key
    output = with_rows(crossed, 0.0)
    assert Severity.WRONG is results(crossed, output)["output"]
    assert Severity.MATCH is results(crossed, output, ONE_LENGTH)["output"]
    short = make_problem(SELF.replace(inputs="cross", queries=4))
    wrong = np.zeros_like(reference_answer(short).output, dtype=short.dtype)
    assert Severity.WRONG is results(short, wrong, ONE_LENGTH)["output"]


@pytest.mark.parametrize("name", ["ZeroedLayer", "Zeroed"])
def test_a_layer_that_blanks_padded_rows_holds(name: str) -> None:
    """The note says it, and the option; with that the same layer fails."""
    lenient = judged(name)
    assert Outcome.PASS is lenient.outcome, lenient
    assert any(PADDED_QUERIES in note and "--strict-padding" in note for note in lenient.notes)
    strict = judged(name, strict_padding=True)
    assert Outcome.FAIL is strict.outcome
    assert "--strict-padding" in strict.failures[0].replay


def test_rows_of_padded_queries_obey_no_relation() -> None:
    """In bfloat16 an output is too rough to tell that they are others; the future is in them."""
    layer = bind(load_subject("padded_queries.py:CausalPositions"))
    case = parse("mha-N1-L12-S12-H1-D18-outproj-padding-causal-bfloat16-s0")
    found = {
        each.check: each.severity for each in run_case(layer, case, DEFAULT_SETTINGS).check_results
    }
    assert "causality" in found
    assert not any(severity.fails for severity in found.values())
    strict = run_case(layer, case, STRICT).check_results
    assert any("causality" == each.check and each.severity.fails for each in strict)
