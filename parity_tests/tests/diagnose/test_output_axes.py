"""An output whose axes come in another order, or are left out, is said to be that."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import Attention, answer_of
from mha_parity.core.candidate import Answer, FunctionCandidate
from mha_parity.core.case import parse
from mha_parity.core.features import make_offer
from mha_parity.core.problem import Problem
from mha_parity.diagnose import diagnose
from mha_parity.diagnose.evidence import Observation
from mha_parity.diagnose.output_axes import name_axis_order

CASES = ("qkv-N3-L5-S5-H2-D4-float64-s1", "qkv-N5-L5-S5-H2-D4-causal-float64-s2")
ONE_ROW = "qkv-N3-L1-S5-H2-D4-cross-float64-s1"
ONE_SAMPLE = "qkv-N1-L5-S5-H2-D4-float64-s2"
ONE_OF_BOTH = "qkv-N1-L1-S5-H2-D4-cross-float64-s3"
OFFER = make_offer(form="qkv", projection="none", inputs=("self", "cross"), attn=("none", "causal"))


def rows_first(problem: Problem) -> Answer:
    """Return the right output as (L, N, E)."""
    return Answer(output=answer_of(Attention, problem).output.swapaxes(0, 1))


def test_an_output_of_rows_first_is_said() -> None:
    """The shapes show it, and where N = L the values."""
    failing = [(p, rows_first(p)) for p in map(make_problem, map(parse, CASES))]
    (found,) = diagnose(FunctionCandidate("rows first", rows_first, OFFER), failing)
    assert "the axes of the output are rows, samples, columns" in found.title
    assert "all 2 failing answers" in found.evidence
    assert found.confident


LONGER = ("qkv-N3-L6-S5-H2-D4-cross-float64-s1", "qkv-N2-L12-S5-H2-D4-cross-float32-s2")


def exchanged(problem: Problem) -> Answer:
    """Return the right output with two axes of the rows exchanged that they are made of."""
    right = answer_of(Attention, problem).output
    parts = right.reshape(right.shape[0], -1, 2, right.shape[-1])
    return Answer(output=parts.swapaxes(1, 2).reshape(right.shape))


def test_rows_in_another_order_are_said() -> None:
    """Each is the right answer of another row: nothing of the weights is wrong."""
    failing = [(p, exchanged(p)) for p in map(make_problem, map(parse, LONGER))]
    (found,) = diagnose(FunctionCandidate("exchanged", exchanged, OFFER), failing)
    assert "stand in another order: of 6 come 0, 2, 4, 1, 3, 5, expected 0, 1, 2" in found.title
    assert found.confident


@pytest.mark.parametrize("words", LONGER)
def test_rows_of_another_sample_and_one_row_twice_are_no_order(words: str) -> None:
    """Each row has to be one of its own sample, and none may be lost."""
    problem = make_problem(parse(words))
    right = answer_of(Attention, problem).output
    twice = right.copy()
    twice[:, 1] = right[:, 0]
    for other in (np.roll(right, 1, axis=0), twice):
        assert () == name_axis_order([Observation(problem, Answer(output=other), failing=True)])


@pytest.mark.parametrize("words", ["qkv-N1-L1-S7-H2-D4-cross-float16-s1", CASES[0]])
def test_errors_of_digits_and_of_numbers_are_no_exchange(words: str) -> None:
    """A hundredth off where N = L = 1, and other numbers, are right in no order."""
    problem = make_problem(parse(words))
    right = answer_of(Attention, problem).output
    for off in (right * np.float64(1.01), right[::-1] + 1):
        answer = Answer(output=off.astype(right.dtype))
        assert () == name_axis_order([Observation(problem, answer, failing=True)])


def test_infinities_of_both_are_compared_by_place() -> None:
    """NaN and infinity are no numbers to subtract: a warning would end the diagnosis."""
    problem = make_problem(parse(CASES[0]))
    right = answer_of(Attention, problem).output
    off = np.where(right > 0, np.inf, right)
    observed = Observation(problem, Answer(output=off.swapaxes(0, 1)), failing=True)
    assert not any(np.isnan(off.ravel()))
    assert 1 == len(name_axis_order([observed]))


def squeezed(problem: Problem) -> Answer:
    """Return the right output without its axes of one element."""
    return Answer(output=answer_of(Attention, problem).output.squeeze())


@pytest.mark.parametrize(
    ("words", "axes"),
    [
        ((ONE_ROW, ONE_SAMPLE), "of samples and that of rows"),
        ((ONE_ROW, ONE_OF_BOTH), "of samples and that of rows"),
        ((ONE_ROW,), "of rows"),
    ],
)
def test_axes_of_one_element_that_are_dropped_are_named(words: tuple[str, ...], axes: str) -> None:
    """squeeze() drops those of one sample and of one query; wrong values are none of these."""
    problems = [make_problem(parse(each)) for each in words]
    (found,) = diagnose(
        FunctionCandidate("squeezed", squeezed, OFFER), [(p, squeezed(p)) for p in problems]
    )
    assert f"the output lacks the axis {axes} where it has one element" == found.title
    assert f"all {len(words)} failing answers" in found.evidence
    wrong = [Answer(output=-squeezed(each).output) for each in problems]
    pairs = zip(problems, wrong, strict=True)
    assert () == name_axis_order([Observation(p, each, failing=True) for p, each in pairs])


def test_one_axis_of_two_is_the_one_that_all_answers_lack() -> None:
    """Where one of two is dropped, another answer shows which."""
    problems = [make_problem(parse(each)) for each in (ONE_ROW, ONE_OF_BOTH)]
    answers = (Answer(output=answer_of(Attention, p).output.squeeze(1)) for p in problems)
    pairs = zip(problems, answers, strict=True)
    (found,) = name_axis_order([Observation(p, each, failing=True) for p, each in pairs])
    assert "the axis of rows where" in found.title


def test_one_axis_of_two_that_stay_open_is_said_to_be_one_of_them() -> None:
    """No answer shows which of the two is dropped."""
    problem = make_problem(parse(ONE_OF_BOTH))
    answer = Answer(output=answer_of(Attention, problem).output.squeeze(1))
    (found,) = name_axis_order([Observation(problem, answer, failing=True)])
    assert "lacks one axis of samples or rows where" in found.title
    assert found.bug is None


def test_rows_that_see_no_key_say_nothing_of_dropped_axes() -> None:
    """There the answer may be NaN or not. Sums over an axis, or fewer rows, are no dropped axis."""
    hidden = make_problem(parse("qkv-N1-L5-S5-H2-D4-padding-maskedrows-float64-s4"))
    filled = Answer(output=np.nan_to_num(squeezed(hidden).output))
    plain = make_problem(parse(ONE_SAMPLE))
    pairs = [(hidden, filled), (plain, squeezed(plain))]
    (found,) = name_axis_order([Observation(p, each, failing=True) for p, each in pairs])
    assert "squeeze-l1" == found.bug
    three = make_problem(parse(CASES[0]))
    summed = Answer(output=answer_of(Attention, three).output.sum(axis=0))
    assert () == name_axis_order([Observation(three, summed, failing=True)])
    shorter = Answer(output=squeezed(plain).output[:3])
    assert () == name_axis_order([Observation(plain, shorter, failing=True)])
