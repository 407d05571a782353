"""Two answers to one problem differ by no more than both may err."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.checks.call_effects import LAYOUT
from mha_parity.core.case import parse
from mha_parity.core.compare import difference_said, max_difference, reordering_tolerance
from mha_parity.judging.equal_answers import may_both_match
from mha_parity.judging.output import DEFAULT_SETTINGS
from mha_parity.oracle.eval_orders import EVAL_ORDERS, Prepared, attend_in_order
from mha_parity.oracle.reference import reference_answer
from mha_parity.run.case_run import run_case
from mha_parity.targets.bind import bind
from subject_checks import load_subject

if TYPE_CHECKING:
    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem


def test_sums_in_another_order_may_differ_by_more_than_roundings_of_the_output() -> None:
    """Large scores are moved by it; a hundred times as much is a mistake."""
    problem = make_problem(parse("mha-N2-L11-S11-H16-D16-float64-huge-s1"))
    outputs = [attend_in_order(Prepared(problem), each)[0] for each in EVAL_ORDERS]
    farthest = max(max_difference(outputs[0], each) for each in outputs)
    reference = reference_answer(problem)
    assert farthest > reordering_tolerance(outputs[0])
    assert may_both_match(problem, reference, farthest)
    assert not may_both_match(problem, reference, 100 * farthest)


def test_a_difference_without_a_number_is_none_of_rounding() -> None:
    """Another shape or dtype is said in its place."""
    assert 2.5e-13 == difference_said("elements differ by up to 2.5e-13 in the answers of both.")
    problem = make_problem(parse("qkv-N2-L3-S4-H2-D3-cross-float64-s1"))
    said = difference_said("(2, 3) float64 became (3, 2) float64")
    assert not may_both_match(problem, reference_answer(problem), said)


class Noted:
    """A candidate whose answers come with a note on sliced and contiguous arrays."""

    def __init__(self, difference: float) -> None:
        self.candidate = bind(load_subject("linear_layers.py:SelfAttention"))
        self.difference = difference

    def __getattr__(self, name: str) -> Any:
        """Return whatever else the candidate has."""
        return getattr(self.candidate, name)

    def __call__(self, problem: Problem) -> Answer:
        """Return the answer, and the note."""
        note = f"{LAYOUT}: elements differ by up to {self.difference:.3g} in the answers of both."
        return replace(self.candidate(problem), notes=(note,))


@pytest.mark.parametrize(("difference", "fails"), [(1e-16, False), (1e-12, True)])
def test_a_layout_fails_by_more_than_both_answers_may_err(difference: float, fails: bool) -> None:
    """The target's own process has no oracle: what it notes is held against one here."""
    candidate = Noted(difference)
    case = parse("mha-N2-L3-S3-H2-D3-float64-sliced-s1")
    result = run_case(candidate, case, DEFAULT_SETTINGS)
    assert fails == result.fails
    assert ([LAYOUT] if fails else []) == [
        c.check for c in result.check_results if c.severity.fails
    ]
