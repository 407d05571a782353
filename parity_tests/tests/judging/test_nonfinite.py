"""NaN and infinity are judged by their places and are no wildcard; policies are named."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from mha_parity import catalogue
from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import Answer
from mha_parity.core.case import parse
from mha_parity.core.check_result import CheckResult, Severity
from mha_parity.core.features import AXES, make_offer
from mha_parity.core.options import POLICIES, Policy
from mha_parity.core.problem import Problem
from mha_parity.judging import nonfinite
from mha_parity.judging.accuracy import torch_output
from mha_parity.judging.nonfinite import reference_under
from mha_parity.judging.output import JudgeSettings, judge_answer
from mha_parity.oracle.error_bound import roundoff
from mha_parity.oracle.reference import Reference, reference_answer

PLAIN = make_problem(parse("mha-N3-L5-S7-H2-D4-cross-bias-float32-s51"))
MASKED = (
    "mha-N3-L5-S7-H2-D4-cross-bias-padding-maskedrows-weights-float32-s52",
    "mha-N3-L5-S7-H2-D4-cross-bias-outproj-boolmask3d-maskedrows-avgweights-float32-s53",
    "qkv-N3-L5-S7-H4-D4-G2-V5-cross-floatmask-maskedrows-weights-float64-s55",
    "mha-N3-L7-S7-H3-D5-lengths-maskedrows-weights-bfloat16-s56",
)


def rounded(problem: Problem, reference: Reference) -> Answer:
    """Return the reference in the problem's dtype."""
    with np.errstate(all="ignore"):
        weights = reference.averaged if problem.case.weights == "averaged" else reference.weights
        return Answer(
            output=reference.output.astype(problem.dtype),
            weights=None if problem.case.weights == "none" else weights.astype(problem.dtype),
        )


def outcome(found: list[CheckResult], check: str = "output") -> Severity:
    """Return the severity of one check."""
    return next(check_result.severity for check_result in found if check_result.check == check)


def judged(problem: Problem, output: np.ndarray, **settings: object) -> list[CheckResult]:
    """Judge an output alone."""
    chosen = JudgeSettings(**settings)  # type: ignore[arg-type]  # any setting
    return judge_answer(problem, reference_answer(problem), Answer(output=output), chosen)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [(0, 0, 0), (1, 3, 6), np.s_[:]], ids=["first", "inner", "all"])
def test_what_is_no_number_is_wrong(bad: float, where: tuple[int, ...]) -> None:
    """NaN or infinity in one place, or in all, is wrong where the reference has numbers."""
    output = rounded(PLAIN, reference_answer(PLAIN)).output
    output[where] = bad
    found = judged(PLAIN, output)
    assert Severity.WRONG is outcome(found)
    assert f"output is {bad}" in found[0].detail


def test_a_shared_nan_hides_nothing() -> None:
    """Gold, torch and candidate share NaN rows; garbage in one other element is still wrong."""
    problem = make_problem(parse(MASKED[0]))
    reference = reference_answer(problem)
    output = rounded(problem, reference).output
    assert np.isnan(output).any()
    assert Severity.MATCH is outcome(judged(problem, output))
    sample, row, column = np.argwhere(np.isfinite(output))[-1]
    output[sample, row, column] += 1
    assert Severity.WRONG is outcome(judged(problem, output))


def test_nan_everywhere_is_wrong_though_the_gold_has_some() -> None:
    """Rows that the reference has as NaN do not let NaN pass in the others."""
    problem = make_problem(parse(MASKED[0]))
    output = np.full(problem.output_shape, np.nan, dtype=np.float32)
    assert Severity.WRONG is outcome(judged(problem, output))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("words", MASKED)
def test_policies_are_named_and_pass(words: str, policy: Policy) -> None:
    """Rows that see no key may be NaN, zero or uniform: each is named, none fails."""
    problem = make_problem(parse(words))
    reference = reference_answer(problem)
    found = judge_answer(
        problem, reference, rounded(problem, reference_under(problem, reference, policy))
    )
    named = [each for each in found if each.check == "fully masked rows"]
    assert len(named) == 1 + (problem.case.weights != "none")
    assert all(each.detail.endswith(f"rows that see no key are {policy}.") for each in named)
    assert {Severity.MATCH} == {each.severity for each in found}


@pytest.mark.parametrize("asked", POLICIES)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_is_judged_only_when_asked_for(policy: Policy, asked: Policy) -> None:
    """With ``fully_masked`` another policy is wrong, and only there."""
    problem = make_problem(parse(MASKED[2]))
    reference = reference_answer(problem)
    answer = rounded(problem, reference_under(problem, reference, policy))
    found = judge_answer(problem, reference, answer, JudgeSettings(fully_masked=asked))
    assert Severity.MATCH is outcome(found)
    expected = Severity.MATCH if policy == asked else Severity.WRONG
    assert expected is outcome(found, "fully masked rows")


@pytest.mark.parametrize("asked", POLICIES)
@pytest.mark.parametrize("mean", [0, 1])
def test_a_row_that_is_zero_and_the_mean_at_once_meets_both_demands(
    asked: Policy, mean: int
) -> None:
    """Values of +1 and -1 have the mean 0: zeros are named as both, of values of 1 as zero alone.

    A demand for zero or uniform holds there, one for NaN fails.
    """
    problem = make_problem(parse("qkv-N2-L3-S4-H2-D2-cross-boolmask-maskedrows-float64-s5"))
    signs = np.array([1, -1, 1, -1]) if mean == 0 else np.ones(4)
    problem = problem.replace(value=np.broadcast_to(signs[:, None], problem.value.shape).copy())
    answer = rounded(problem, reference_under(problem, reference_answer(problem), "zero"))
    found = judged(problem, answer.output, fully_masked=asked)
    holds = asked in (("zero", "uniform") if mean == 0 else ("zero",))
    assert holds is not outcome(found, "fully masked rows").fails
    (named,) = [each.detail for each in found if each.check == "fully masked rows"]
    assert (mean == 0) is (nonfinite.SEVERAL in named)


WITHOUT_KEYS = make_problem(parse("mha-N2-L3-S0-H2-D4-cross-bias-float32-s57"))


@pytest.mark.parametrize(("asked", "fails"), [(None, False), ("nan", False), ("zero", True)])
def test_nan_without_any_key_is_named_and_fails_where_zero_is_asked_for(
    asked: Policy | None, fails: bool
) -> None:
    """0 / 0 at S = 0 is judged as in rows whose mask hides every key; torch has 0 there."""
    found = judged(WITHOUT_KEYS, np.full((2, 3, 8), np.nan, np.float32), fully_masked=asked)
    assert Severity.MATCH is outcome(found)
    named = next(each for each in found if each.check == "fully masked rows")
    assert (fails, True) == (named.severity.fails, "rows without any key (S = 0)" in named.detail)


@pytest.mark.parametrize("number", [1.0, np.inf, "one"])
def test_without_any_key_nothing_but_zero_and_nan_is_right(number: float | str) -> None:
    """A number, infinity, or NaN in one of several rows is wrong at S = 0."""
    output = np.zeros((2, 3, 8), np.float32)
    output[0, 0] = np.nan if number == "one" else number
    assert Severity.WRONG is outcome(judged(WITHOUT_KEYS, output))
    assert Severity.MATCH is outcome(judged(WITHOUT_KEYS, np.zeros_like(output)))


def test_other_numbers_in_masked_rows_have_no_name() -> None:
    """A row that sees no key and holds what no policy gives is named other."""
    problem = make_problem(parse(MASKED[2]))
    reference = reference_answer(problem)
    output = rounded(problem, reference).output
    output[np.isnan(output)] = 77
    found = judged(problem, output)
    assert any(
        each.detail == "output: rows that see no key are neither nan, zero nor uniform."
        for each in found
    )
    assert outcome(judged(problem, output, fully_masked="nan"), "fully masked rows").fails


@pytest.mark.parametrize("dtype", AXES["dtype"])
def test_torch_is_named_for_what_it_does(dtype: str) -> None:
    """Torch's module gives NaN in rows that see no key, its function on projected Q, K, V zero."""
    for form, policy in (("mha", "nan"), ("qkv", "zero")):
        case = parse(f"{form}-N3-L5-S7-H2-D4-cross-boolmask3d-maskedrows-{dtype}-s56")
        found = judged(make_problem(case), torch_output(make_problem(case)))
        assert any(each.detail.endswith(f"no key are {policy}.") for each in found), found


@pytest.mark.parametrize(
    ("bug", "regime"),
    [
        ("softmax-no-max", "huge"),
        ("softmax-max-from-zero", "very_negative"),
        ("softmax-global-max", "wide_range"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_regimes_show_a_softmax_that_leaves_its_range(
    bug: str, regime: str, dtype: str
) -> None:
    """Logits past 88 and 709, far below 0 and of a wide range show NaN and zeros of three bugs."""
    fails = []
    offered = make_offer(dtype=dtype, regime=regime, bias="yes", size=("small", "medium"))
    for case in draw_cases(offered, 12, 57):
        problem = make_problem(case)
        answer = catalogue.catalogue()[bug].attend(problem)
        fails.append(outcome(judge_answer(problem, reference_answer(problem), answer)).fails)
    assert sum(fails) >= len(fails) / 2


def poisoned(words: str, bad: float) -> Problem:
    """Return a problem with ``bad`` in the last key of sample 1, hidden from every query of it."""
    problem = make_problem(parse(words))
    key, value = problem.key.copy(), problem.value.copy()
    hidden = np.zeros((3, 7), dtype=bool)
    hidden[1, -1] = True
    key[1, -1] = value[1, -1] = bad
    return problem.replace(key=key, value=value, key_padding_mask=hidden)


POISONED = (
    "mha-N3-L5-S7-H2-D4-cross-bias-padding-weights-float32-s58",
    "mha-N3-L5-S7-H2-D4-cross-bias-outproj-padding-float32-s59",
    "qkv-N3-L5-S7-H2-D4-cross-padding-weights-float64-s60",
)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("words", POISONED)
def test_a_candidate_that_sanitises_is_named_and_passes(words: str, bad: float) -> None:
    """Torch lets NaN and infinity through a mask; who keeps them out passes and is named."""
    problem = poisoned(words, bad)
    reference = reference_answer(problem)
    assert not np.isfinite(reference.output).all()
    as_torch = judge_answer(problem, reference, rounded(problem, reference))
    assert {Severity.MATCH} == {each.severity for each in as_torch}
    assert "sanitises" not in as_torch[0].detail
    clean = rounded(problem, nonfinite.sanitised_problem(problem, reference)[1])
    found = judge_answer(problem, reference, clean)
    assert {Severity.MATCH} == {each.severity for each in found}
    assert "sanitises" in found[0].detail


@pytest.mark.parametrize("words", POISONED)
def test_sanitising_is_no_excuse(words: str) -> None:
    """Finite garbage where torch has NaN behind a mask is wrong, and so is NaN in other samples."""
    problem = poisoned(words, np.nan)
    reference = reference_answer(problem)
    clean = rounded(problem, nonfinite.sanitised_problem(problem, reference)[1]).output
    for sample, bad in ((1, 3.0), (0, np.nan)):
        output = clean.copy()
        output[sample, 2, 3] = bad
        assert outcome(judged(problem, output)).fails


def test_what_overflows_the_dtype_is_infinite_there() -> None:
    """Values of 65519 times 1.3 are past float16: infinity is right there, a number is not."""
    problem = make_problem(parse("qkv-N1-L3-S2-H1-D2-cross-float16-s61"))
    value = np.full(problem.value.shape, 60000, dtype=np.float16)
    scaled = problem.replace(value=value)
    reference = reference_answer(scaled)
    big = Reference(
        **{**vars(reference), "output": reference.output * 1.3, "heads": reference.heads * 1.3}
    )
    infinite = np.full(scaled.output_shape, np.inf, dtype=np.float16)
    finite = np.full(scaled.output_shape, 65504, dtype=np.float16)
    assert Severity.MATCH is outcome(judge_answer(scaled, big, Answer(output=infinite)))
    assert outcome(judge_answer(scaled, big, Answer(output=finite))).fails
    # Kills the mutation that compares whether both are infinite, and not with which sign.
    assert outcome(judge_answer(scaled, big, Answer(output=-infinite))).fails


@pytest.mark.parametrize(("count", "said"), [(1, "; 1 such place."), (2, "; 2 such places.")])
def test_places_without_a_number_are_counted(count: int, said: str) -> None:
    """Kills `not wrong > 1`, and a count of the rows in the place of one of the elements."""
    output = rounded(PLAIN, reference_answer(PLAIN)).output
    output[0, 1, :count] = np.nan
    assert judged(PLAIN, output)[0].detail.endswith(said)


def test_the_reach_of_a_policy_grows_with_the_largest_terms_alone() -> None:
    """By its factors: kills 1 as the least largest value, and queries counted for keys.

    A reach too large would name an answer that is far off "uniform".
    """
    problem = make_problem(parse("qkv-N2-L3-S7-H2-D4-cross-float64-s1"))
    reference = reference_answer(problem)

    def reach(name: str, reference: Reference, problem: Problem = problem) -> float:
        judged = SimpleNamespace(name=name)
        found = nonfinite.policy_reach(problem, reference, judged)  # type: ignore[arg-type]  # the name is what is read
        return found / roundoff(problem.dtype)

    small = replace(reference, v=reference.v / 2**9)
    assert reach("weights", reference) == reach("weights", small) > 7
    assert reach("output", reference) == pytest.approx(2**9 * reach("output", small))
    assert reach("output", reference) == pytest.approx(
        reach("weights", reference) * float(np.abs(reference.v).max())
    )
    for changes, more in (({"keys": 9}, 2), ({"queries": 9}, 0), ({"head_dim": 6}, 4)):
        other = make_problem(problem.case.replace(**changes))
        difference = reach("weights", reference_answer(other), other) - reach("weights", reference)
        assert difference == pytest.approx(more), changes
