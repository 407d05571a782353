"""The overflow of an unscaled q k^T in float16 is asked once in each run, whatever its seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mha_parity import catalogue
from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import Answer, FunctionCandidate
from mha_parity.core.case import parse
from mha_parity.core.features import make_offer
from mha_parity.core.options import Options
from mha_parity.core.problem import Problem
from mha_parity.core.verdict import Outcome
from mha_parity.judging.output import DEFAULT_SETTINGS, OVERFLOWS, SUM_OVERFLOWS, judge_answer
from mha_parity.oracle.reference import reference_answer
from mha_parity.run.case_run import run_case
from mha_parity.run.check import check
from mha_parity.run.overflow import CHECK, SENTENCE, UNKNOWN, overflow_problem
from mha_parity.targets.bind import bind
from mha_parity.targets.load import load
from subject_checks import SUBJECTS

SUBJECT = f"{SUBJECTS}/half_overflow.py"
HALF = make_offer(dtype=("float16", "float32"), inputs=("self", "cross"), bias=("no", "yes"))
OFFERS = {
    "layer": HALF,
    "self": make_offer(dtype="float16"),
    "unbatched": HALF | {"layout": ("unbatched",)},
    "causal": HALF | {"attn": ("causal",)},
    "projected": make_offer(form="qkv", projection="none", dtype="float16", kv_heads="fewer"),
}
RUN = Options(cases=12, dtypes=("float16",), diagnose=False, shrink=False)


@pytest.mark.parametrize("name", OFFERS)
def test_the_fixed_problem_overflows_unscaled_alone(name: str) -> None:
    """The raw product passes float16's largest number, the scaled one and the answer do not."""
    problem = overflow_problem(OFFERS[name])
    assert problem is not None
    attention = catalogue.Attention(problem)
    output = attention.answer().output
    q, k = (attention.stages[each].astype(float) for each in ("query heads", "key heads"))
    raw = np.abs(q @ k.swapaxes(-1, -2)).max()
    assert problem.scale * raw < np.finfo(np.float16).max < raw
    reference = reference_answer(problem)
    assert np.isfinite(output.astype(float)).all()
    np.testing.assert_array_equal(reference.weights[..., 0].astype(float), 1)


def test_without_float16_nothing_is_asked() -> None:
    """Where float16 or a plain call is not offered there is no such problem."""
    assert overflow_problem(make_offer()) is None
    assert overflow_problem(HALF | {"padding": ("lengths",)}) is None


@pytest.mark.parametrize("seed", range(2), ids="seed{}".format)
@pytest.mark.parametrize(
    ("name", "overflows"), [("scales_scores", True), ("scales_queries", False)]
)
def test_an_overflow_is_named_and_red_only_on_demand(name: str, overflows: bool, seed: int) -> None:
    """The same remark whatever the seed; ``strict_overflow`` makes it the run's failure."""
    candidate = bind(load(f"{SUBJECT}:{name}"))
    lenient = check(candidate, replace(RUN, seed=seed))
    assert Outcome.FAIL is not lenient.outcome
    assert overflows is (SENTENCE in lenient.notes)
    assert overflows is (CHECK not in {row.name for row in lenient.checks})
    strict = check(candidate, replace(RUN, seed=seed, strict_overflow=True))
    assert overflows is (Outcome.FAIL is strict.outcome)
    if overflows:
        (failure,) = strict.failures
        assert (CHECK, SENTENCE) == (failure.check_result.check, failure.check_result.detail)
        assert failure.replay.endswith("--strict-overflow")


def test_an_overflow_that_is_replaced_by_zeros_is_named_too() -> None:
    """The output is finite and another: the remark says both numbers, and is red on demand."""
    candidate = bind(load(f"{SUBJECT}:replaces_nan"))
    (note,) = [each for each in check(candidate, RUN).notes if "overflows" in each]
    assert "the output is 0 where torch's is 64; scale q first" in note
    strict = check(candidate, replace(RUN, strict_overflow=True))
    assert [note] == [each.check_result.detail for each in strict.failures]


@pytest.mark.parametrize(
    "name", ["over_queries", "caps_scores", "returns_queries", "drops_weights", "forgets_large"]
)
def test_another_mistake_is_no_overflow(name: str) -> None:
    """Where a problem within float16's range, or float32, is wrong too, no overflow is named.

    On demand the run says that the overflow is not known, and no failure is one of that check.
    """
    candidate = bind(load(f"{SUBJECT}:{name}"))
    run = replace(RUN, dtypes=("float16", "float32"))
    assert not [each for each in check(candidate, run).notes if "overflows" in each]
    strict = check(candidate, replace(run, strict_overflow=True))
    assert UNKNOWN in strict.notes
    assert CHECK not in {each.check_result.check for each in strict.failures}


DRAWN = "mha-N2-L71-S71-H2-D72-weights-float16-widerange-fortran-s13"
# One head of twelve overflows; the identity of the output projection makes NaN of its whole row.
ONE_HEAD = "mha-N2-L20-S20-H12-D12-float16-widerange-s461"


def test_a_drawn_case_that_overflows_unscaled_fails_nothing() -> None:
    """NaN in rows that pass float16 before the scale is inconclusive, output and weights."""
    candidate = bind(load(f"{Path(SUBJECT).parent}/linear_layers.py:SelfAttention"))
    result = run_case(candidate, parse(DRAWN), DEFAULT_SETTINGS)
    assert (False, True) == (result.fails, result.inconclusive)
    assert [OVERFLOWS, OVERFLOWS] == [each.detail for each in result.check_results if each.detail]


def test_one_head_that_overflows_fails_no_other() -> None:
    """The rows of all heads are inconclusive, since NaN times 0 is NaN."""
    candidate = bind(load(f"{Path(SUBJECT).parent}/reached.py:PackedOfAnyName"))
    result = run_case(candidate, parse(ONE_HEAD), DEFAULT_SETTINGS)
    assert (False, True) == (result.fails, result.inconclusive)


@pytest.mark.parametrize(("name", "fails"), [("divides_last", False), ("forgets_later_keys", True)])
def test_a_sum_that_overflows_before_it_is_divided_fails_nothing(name: str, fails: bool) -> None:
    """257 values of 2e4 in one sample pass float16, and their mean does not; the rest is judged."""
    problem = make_problem(parse("qkv-N2-L6-S257-H1-D4-cross-float16-s3"))
    value = problem.value.copy()
    value[1] = 2e4
    problem = problem.replace(value=value)
    answer = bind(load(f"{SUBJECT}:{name}"))(problem)
    assert np.isinf(answer.output).any()
    found = judge_answer(problem, reference_answer(problem), answer, DEFAULT_SETTINGS)
    assert fails is any(each.severity.fails for each in found)
    assert fails is (SUM_OVERFLOWS not in {each.detail for each in found})


def test_what_is_wrong_elsewhere_still_fails_there() -> None:
    """The same case with rows that do not overflow wrong as well fails."""
    candidate = bind(load(f"{Path(SUBJECT).parent}/linear_layers.py:SelfAttention"))

    def shifted(problem: Problem) -> Answer:
        answer = candidate(problem)
        return replace(answer, output=np.roll(answer.output, 1, axis=1))

    offered = FunctionCandidate("f", shifted, candidate.offer)
    assert run_case(offered, parse(DRAWN), DEFAULT_SETTINGS).fails


def test_the_catalogue_s_overflow_is_caught_by_it() -> None:
    """The wrong attention of that name has the remark; the right one in half has none."""
    wrong = catalogue.catalogue()["f16-qk-overflow"]

    def right(problem: Problem) -> Answer:
        return catalogue.answer_of(catalogue.Attention, problem)

    for attend, found in ((wrong.attend, True), (right, False)):
        verdict = check(FunctionCandidate("f", attend, HALF), RUN)
        assert found is (SENTENCE in verdict.notes)
