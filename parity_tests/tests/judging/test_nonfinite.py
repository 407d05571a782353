"""NaN and infinity are judged by their places and are no wildcard; policies are named."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity import nonfinite, wrong
from mha_parity.accuracy import torch_output
from mha_parity.candidate import Answer
from mha_parity.case import parse
from mha_parity.drawing import draw_cases
from mha_parity.features import AXES, offer
from mha_parity.gold import Gold, golden
from mha_parity.judgement import Judgement, Severity
from mha_parity.judging import Settings, judge
from mha_parity.making import make
from mha_parity.nonfinite import POLICIES, Policy, under
from mha_parity.problem import Problem

PLAIN = make(parse("mha-N3-L5-S7-H2-D4-cross-bias-float32-s51"))
MASKED = (
    "mha-N3-L5-S7-H2-D4-cross-bias-padding-maskedrows-weights-float32-s52",
    "mha-N3-L5-S7-H2-D4-cross-bias-outproj-boolmask3d-maskedrows-avgweights-float32-s53",
    "qkv-N3-L5-S7-H4-D4-G2-V5-cross-floatmask-maskedrows-weights-float64-s54",
    "mha-N3-L7-S7-H3-D5-lengths-maskedrows-weights-bfloat16-s55",
)


def rounded(problem: Problem, gold: Gold) -> Answer:
    """Return the gold in the problem's dtype."""
    with np.errstate(all="ignore"):
        weights = gold.averaged if problem.case.weights == "averaged" else gold.weights
        return Answer(
            output=gold.output.astype(problem.dtype),
            weights=None if problem.case.weights == "none" else weights.astype(problem.dtype),
        )


def outcome(found: list[Judgement], check: str = "output") -> Severity:
    """Return the severity of one check."""
    return next(judgement.severity for judgement in found if judgement.check == check)


def judged(problem: Problem, output: np.ndarray, **settings: object) -> list[Judgement]:
    """Judge an output alone."""
    chosen = Settings(**settings)  # type: ignore[arg-type]  # any setting
    return judge(problem, golden(problem), Answer(output=output), chosen)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [(0, 0, 0), (1, 3, 6), np.s_[:]], ids=["first", "inner", "all"])
def test_what_is_no_number_is_wrong(bad: float, where: tuple[int, ...]) -> None:
    """NaN or infinity in one place, or in all, is wrong where the gold has numbers."""
    output = rounded(PLAIN, golden(PLAIN)).output
    output[where] = bad
    found = judged(PLAIN, output)
    assert outcome(found) is Severity.WRONG
    assert f"output is {bad}" in found[0].detail


def test_a_shared_nan_hides_nothing() -> None:
    """Gold, torch and candidate share NaN rows; garbage in one other element is still wrong."""
    problem = make(parse(MASKED[0]))
    gold = golden(problem)
    output = rounded(problem, gold).output
    assert np.isnan(output).any()
    assert outcome(judged(problem, output)) is Severity.MATCH
    sample, row, column = np.argwhere(np.isfinite(output))[-1]
    output[sample, row, column] += 1
    assert outcome(judged(problem, output)) is Severity.WRONG


def test_nan_everywhere_is_wrong_though_the_gold_has_some() -> None:
    """Rows that the gold has as NaN do not let NaN pass in the others."""
    problem = make(parse(MASKED[0]))
    output = np.full(problem.output_shape, np.nan, dtype=np.float32)
    assert outcome(judged(problem, output)) is Severity.WRONG


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("words", MASKED)
def test_policies_are_named_and_pass(words: str, policy: Policy) -> None:
    """Rows that see no key may be NaN, zero or uniform: each is named, none fails."""
    problem = make(parse(words))
    gold = golden(problem)
    found = judge(problem, gold, rounded(problem, under(problem, gold, policy)))
    named = [each for each in found if each.check == "fully masked rows"]
    assert len(named) == 1 + (problem.case.weights != "none")
    assert all(each.detail.endswith(f"rows that see no key are {policy}.") for each in named)
    assert {each.severity for each in found} == {Severity.MATCH}


@pytest.mark.parametrize("asked", POLICIES)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_is_judged_only_when_asked_for(policy: Policy, asked: Policy) -> None:
    """With ``fully_masked`` another policy is wrong, and only there."""
    problem = make(parse(MASKED[2]))
    gold = golden(problem)
    answer = rounded(problem, under(problem, gold, policy))
    found = judge(problem, gold, answer, Settings(fully_masked=asked))
    assert outcome(found) is Severity.MATCH
    expected = Severity.MATCH if policy == asked else Severity.WRONG
    assert outcome(found, "fully masked rows") is expected


def test_other_numbers_in_masked_rows_have_no_name() -> None:
    """A row that sees no key and holds what no policy gives is named other."""
    problem = make(parse(MASKED[2]))
    gold = golden(problem)
    output = rounded(problem, gold).output
    output[np.isnan(output)] = 77
    found = judged(problem, output)
    assert any(each.detail == "output: rows that see no key are other." for each in found)
    assert outcome(judged(problem, output, fully_masked="nan"), "fully masked rows").fails


@pytest.mark.parametrize("dtype", AXES["dtype"])
def test_torch_is_named_for_what_it_does(dtype: str) -> None:
    """Torch's module gives NaN in rows that see no key, its function on projected Q, K, V zero."""
    for form, policy in (("mha", "nan"), ("qkv", "zero")):
        case = parse(f"{form}-N3-L5-S7-H2-D4-cross-boolmask3d-maskedrows-{dtype}-s56")
        found = judged(make(case), torch_output(make(case)))
        assert any(each.detail.endswith(f"no key are {policy}.") for each in found), found


@pytest.mark.parametrize(
    ("bug", "regime"),
    [("softmax-no-max", "huge"), ("softmax-max-from-zero", "low"), ("softmax-global-max", "apart")],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_regimes_show_a_softmax_that_leaves_its_range(
    bug: str, regime: str, dtype: str
) -> None:
    """Logits past 88 and 709, far below 0 and far apart: NaN and zeros of three bugs are seen."""
    fails = []
    offered = offer(dtype=dtype, regime=regime, bias="yes", size=("small", "medium"))
    for case in draw_cases(offered, 12, 57):
        problem = make(case)
        answer = wrong.catalogue()[bug].attend(problem)
        fails.append(outcome(judge(problem, golden(problem), answer)).fails)
    assert sum(fails) >= len(fails) / 2


def poisoned(words: str, bad: float) -> Problem:
    """Return a problem with ``bad`` in the last key of sample 1, hidden from every query of it."""
    problem = make(parse(words))
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
    gold = golden(problem)
    assert not np.isfinite(gold.output).all()
    as_torch = judge(problem, gold, rounded(problem, gold))
    assert {each.severity for each in as_torch} == {Severity.MATCH}
    assert "sanitises" not in as_torch[0].detail
    clean = rounded(problem, nonfinite.sanitised(problem, gold)[1])
    found = judge(problem, gold, clean)
    assert {each.severity for each in found} == {Severity.MATCH}
    assert "sanitises" in found[0].detail


@pytest.mark.parametrize("words", POISONED)
def test_sanitising_is_no_excuse(words: str) -> None:
    """Finite garbage where torch has NaN behind a mask is wrong, and so is NaN in other samples."""
    problem = poisoned(words, np.nan)
    gold = golden(problem)
    clean = rounded(problem, nonfinite.sanitised(problem, gold)[1]).output
    for sample, bad in ((1, 3.0), (0, np.nan)):
        output = clean.copy()
        output[sample, 2, 3] = bad
        assert outcome(judged(problem, output)).fails


def test_what_overflows_the_dtype_is_infinite_there() -> None:
    """Values of 65519 times 1.3 are past float16: infinity is right there, a number is not."""
    problem = make(parse("qkv-N1-L3-S2-H1-D2-cross-float16-s61"))
    value = np.full(problem.value.shape, 60000, dtype=np.float16)
    scaled = problem.replace(value=value)
    gold = golden(scaled)
    big = Gold(**{**vars(gold), "output": gold.output * 1.3, "heads": gold.heads * 1.3})
    infinite = np.full(scaled.output_shape, np.inf, dtype=np.float16)
    finite = np.full(scaled.output_shape, 65504, dtype=np.float16)
    assert outcome(judge(scaled, big, Answer(output=infinite))) is Severity.MATCH
    assert outcome(judge(scaled, big, Answer(output=finite))).fails
