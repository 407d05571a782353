"""A finding on calls of a check's own tells these calls, and a replay prints them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from mha_parity.cases.generate import make_problem
from mha_parity.checks import (
    causal_lengths,
    context_widths,
    left_padding,
    single_row_masks,
    tile_sizes,
    value_widths,
    windows,
)
from mha_parity.checks.compared_calls import ComparedCall, compared_calls_reported, tell_compared
from mha_parity.checks.metamorphic import batch_permutation, judge_relation
from mha_parity.commands.replay import replay
from mha_parity.core.case import Case
from mha_parity.core.options import Options
from mha_parity.oracle.reference import reference_answer
from mha_parity.run.check import check
from mha_parity.worker.open_target import bind_in_process, opened
from subject_checks import SUBJECTS, check_subject, load_subject

STATE = "statelessness"


def reported_by(target: str, cases: int) -> dict[str, str]:
    """Return by the check what a run tells first."""
    options = Options(cases=cases, diagnose=False, shrink=False, dtypes=("float64",))
    candidate = bind_in_process(load_subject(target), options)
    reported: dict[str, str] = {}

    def tell(check: str, text: str) -> None:
        reported.setdefault(check, text)

    candidate.describe_calls(tell)
    with compared_calls_reported(tell):
        check(candidate, options)
    return reported


@pytest.mark.parametrize(
    ("target", "name", "said"),
    [
        ("kept_masks.py:LastRowsOfTheLargest", STATE, "a new object is asked"),
        ("dishonest.py:remembers_keys", STATE, "another problem of these shapes"),
        ("few_queries.py:without_rule_for_one", causal_lengths.NAME, "the first of them"),
        ("few_queries.py:CausalWithLastRow", single_row_masks.NAME, "in every row"),
        ("tile_arguments.py:whole_chunks", tile_sizes.NAME, "without a size of tiles"),
        ("left_padding.py:FirstKeyShows", left_padding.NAME, "alone"),
        ("context_widths.py:ScaledByContext", context_widths.NAME, "one width for both"),
        ("value_widths.py:ScaledByValues", value_widths.NAME, "one width for both"),
        ("windows.py:sides_exchanged_from_31", windows.NAME, "without a window"),
        ("training_modes.py:DropsAlways", "dropout off", "in eval mode, drawn anew each time"),
    ],
)
def test_a_finding_tells_what_it_compares(target: str, name: str, said: str) -> None:
    """Both calls with their words, inputs and outputs."""
    text = reported_by(target, 40 if "few_queries" in target else 14)[name]
    assert said in text
    assert text.startswith("1. ")
    assert "\n2. " in text
    assert 2 == text.count("   output  float64(")
    assert "   query" in text


def test_a_relation_tells_both_outputs_and_what_the_second_should_be() -> None:
    """By the first output; where the relation holds, nothing."""
    problem = make_problem(Case(seed=3, batch=2, queries=3, keys=3, heads_count=1, head_dim=2))
    related = batch_permutation(problem)
    assert related is not None
    first = reference_answer(problem).output
    reported: list[tuple[str, str]] = []
    with compared_calls_reported(lambda check, text: reported.append((check, text))):
        for second in (first[::-1], first):
            judge_relation(problem, np.full_like(first, 1e-12), first, second, "batch", related)
    ((name, text),) = reported
    assert "batch" == name
    assert ["1. the case", "2. the samples reversed", "3. what that should be by the first"] == [
        line for line in text.splitlines() if line[0].isdigit()
    ]
    assert 3 == text.count("   output  ")


def test_an_array_is_shown_where_it_is_another_than_in_the_call_before() -> None:
    """Names of one array are in one line; small masks are shown, large arrays summed up.

    Nothing is formatted without a listener.
    """
    case = Case(seed=3, batch=1, queries=2, keys=2, heads_count=1, head_dim=1, projection="none")
    given = dict.fromkeys(("w_q", "w_k", "w_v"))
    problem = make_problem(case).replace(**given)
    hidden = np.array([[True, False]])
    causal = problem.replace(case=problem.case.replace(attn="causal"), key_padding_mask=hidden)
    calls = (
        ComparedCall("first", problem, np.zeros((1, 2, 1))),
        ComparedCall("then", causal, np.zeros((1, 20, 5))),
    )
    tell_compared("any", *calls)
    reported: list[tuple[str, str]] = []
    with compared_calls_reported(lambda check, text: reported.append((check, text))):
        tell_compared("any", *calls)
    row = [f"     {value:.5g}" for value in problem.query.ravel()]
    assert [(
        "any",
        "\n".join([
            "1. first", "   query, key, value  float64(1,2,1)", *row,
            "   output  float64(1,2,1)", "     0", "     0",
            "2. then", "   key_padding_mask  bool(1,2), 1 hides  1  0", "   is_causal  True",
            "   output  float64(1,20,5)  from 0 to 0",
        ]),
    )] == reported  # fmt: skip


@pytest.mark.parametrize("in_process", [False, True], ids=["isolated", "here"])
def test_a_replay_prints_the_calls_that_a_failed_check_compares(in_process: bool) -> None:
    """From the target's process as from this one; of checks that hold there is nothing."""
    target = f"{SUBJECTS}/few_queries.py:without_rule_for_one"
    verdict = check_subject(target, cases=40, dtypes=("float64",))
    case = next(f.case for f in verdict.failures if f.check_result.check == causal_lengths.NAME)
    stream, options = io.StringIO(), Options(in_process=in_process)
    console = Console(file=stream, width=100, color_system=None)
    assert 1 == replay(case.id, opened(target, options), target, options, console, pdb=False)
    assert " calls compared by causal rule of few queries\n" in stream.getvalue()
    assert " 2. the first of them\n" in stream.getvalue()
    assert 1 == stream.getvalue().count("calls compared by")
