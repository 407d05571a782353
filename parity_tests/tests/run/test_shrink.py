"""Shrinking: what is left still fails, is no larger, and is just what the bug needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mha_parity.cases.clashes import can_coexist
from mha_parity.cases.covering import draw_cases
from mha_parity.core.candidate import Answer, CandidateError, FunctionCandidate
from mha_parity.core.case import Case, parse, plain_distance
from mha_parity.core.check_result import CheckResult, Severity
from mha_parity.core.features import AXES, Offer
from mha_parity.core.problem import Problem
from mha_parity.judging.output import JudgeSettings
from mha_parity.oracle.reference import reference_answer
from mha_parity.run import shrink
from mha_parity.run.case_run import run_case
from mha_parity.worker import client
from subject_checks import SUBJECTS

WHOLE: Offer = {axis: tuple(values) for axis, values in AXES.items()}
SIZES = ("batch", "queries", "keys", "heads_count", "head_dim")
LARGE = parse(
    "mha-N5-L13-S17-H7-D11-cross-bias-outproj-padding-floatmask3d-weights-float32-peaky-fortran-s93"
)
GROUPED = parse("qkv-N3-L7-S11-H6-D5-G2-V9-cross-boolmask3d-scaled-float32-tiny-sliced-s41")

Rule = Callable[[Case], bool]


def smallest(case: Case, fails: Rule) -> tuple[Case, list[Case]]:
    """Return the smallest case that fails by a rule, and all cases that were tried for it."""
    tried: list[Case] = []

    def counted(smaller: Case) -> bool:
        tried.append(smaller)
        return fails(smaller)

    return shrink.smallest_failing_case(case, counted, lambda _: True), tried


RULES: dict[str, tuple[Rule, str]] = {
    "always": (lambda _: True, "mha-N1-L2-S2-H1-D1-float64-s0"),
    "three-heads": (lambda case: case.heads_count >= 3, "mha-N1-L2-S2-H3-D1-float64-s0"),
    "odd-width": (
        lambda case: case.head_dim % 2 == 1 and case.head_dim > 2,
        "mha-N1-L2-S2-H1-D3-float64-s0",
    ),
    "some-mask": (lambda case: case.attn != "none", "mha-N1-L2-S2-H1-D1-boolmask-float64-s0"),
    "padding": (lambda case: case.padding != "none", "mha-N1-L2-S2-H1-D1-padding-float64-s0"),
    "cross": (lambda case: case.inputs == "cross", "mha-N1-L2-S2-H1-D1-cross-float64-s0"),
    "more-keys": (lambda case: case.keys > case.queries, "mha-N1-L2-S3-H1-D1-cross-float64-s0"),
    "two-samples-per-head": (
        lambda case: case.attn == "float3d" and case.batch > 1,
        "mha-N2-L2-S2-H1-D1-floatmask3d-float64-s0",
    ),
    "float32": (lambda case: case.dtype == "float32", "mha-N1-L2-S2-H1-D1-float32-s0"),
    "fortran": (lambda case: case.memory == "fortran", "mha-N1-L2-S2-H1-D1-float64-fortran-s0"),
    "out-projection": (
        lambda case: case.out_proj == "general" and case.bias == "yes",
        "mha-N1-L2-S2-H1-D1-bias-outproj-float64-s0",
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_only_what_the_bug_needs_is_left(name: str) -> None:
    """Of a large case with ten features nothing is left but what the rule asks for."""
    fails, minimal = RULES[name]
    found, _ = smallest(LARGE, fails)
    assert minimal == found.id


def test_grouped_heads_and_value_widths_are_shrunk() -> None:
    """Groups and the value width go, or the smallest numbers that make the feature stay."""
    assert "qkv-N1-L2-S2-H1-D1-float64-s0" == smallest(GROUPED, lambda _: True)[0].id
    grouped, _ = smallest(GROUPED, lambda case: case.kv_heads == "fewer")
    assert ("fewer", 1, 2, 2) == (grouped.kv_heads, grouped.batch, grouped.queries, grouped.keys)
    assert grouped.heads_count <= GROUPED.heads_count


def hashed(case: Case) -> bool:
    """Fail on half of all cases, without any pattern."""
    return sum(map(ord, case.id)) % 2 == 0


@pytest.mark.parametrize("seed", range(4), ids="seed{}".format)
@pytest.mark.parametrize(
    "rule", [hashed, *(fails for fails, _ in RULES.values())], ids=["hashed", *RULES]
)
def test_what_is_left_fails_and_is_no_larger(rule: Rule, seed: int) -> None:
    """From any drawn case: the result fails, can be drawn, is smaller or equal in every respect."""
    failing = [case for case in draw_cases(WHOLE, 30, seed) if rule(case)]
    assert failing
    for case in failing:
        found, _ = smallest(case, rule)
        assert rule(found)
        assert can_coexist(found.features())
        assert found == parse(found.id)
        assert plain_distance(found) <= plain_distance(case)
        assert [] == [name for name in SIZES if getattr(found, name) > getattr(case, name)]


@pytest.mark.parametrize("seed", range(4), ids="seed{}".format)
def test_it_ends_and_stays(seed: int) -> None:
    """No case costs more than ``STEPS`` trials, none is tried twice, and the result is final."""
    for case in filter(hashed, draw_cases(WHOLE, 60, seed)):
        found, tried = smallest(case, hashed)
        assert len(tried) <= shrink.STEPS
        assert len(tried) == len(set(tried))
        if len(tried) < shrink.STEPS:
            assert found == smallest(found, hashed)[0]


def test_it_ends_where_everything_small_is_hard(monkeypatch: pytest.MonkeyPatch) -> None:
    """With trials for three steps alone, the best of these three is returned."""
    monkeypatch.setattr(shrink, "STEPS", 3)
    found, tried = smallest(LARGE, lambda case: case.heads_count >= 3)
    assert 3 == len(tried)
    assert found in {LARGE, *tried}


def test_one_step_is_enough_where_anything_fails() -> None:
    """What fails on every case costs one trial."""
    _, tried = smallest(LARGE, lambda _: True)
    assert 1 == len(tried)


def test_what_is_not_offered_is_not_tried() -> None:
    """A target that offers float32 and batches of sequences first is asked for nothing else."""
    case = LARGE.replace(layout="sequence_first")
    asked: list[Case] = []

    def fails(smaller: Case) -> bool:
        asked.append(smaller)
        return True

    def offered(smaller: Case) -> bool:
        return (smaller.dtype, smaller.layout) == ("float32", "sequence_first")

    shrink.smallest_failing_case(case, fails, offered)
    assert {("float32", "sequence_first")} == {(each.dtype, each.layout) for each in asked}


def attention(wrong: Callable[[Problem], bool]) -> FunctionCandidate:
    """Return an attention that is right but where ``wrong`` says so; there it is off by a half."""

    def attend(problem: Problem) -> Answer:
        reference = reference_answer(problem)
        off = 0.5 * np.abs(reference.output).max(initial=1) if wrong(problem) else 0
        return Answer(
            output=np.asarray(reference.output + off).astype(problem.dtype),
            weights=_weights(problem, reference.weights, reference.averaged),
        )

    return FunctionCandidate("x:f", attend, WHOLE)


def _weights(problem: Problem, per_head: np.ndarray, averaged: np.ndarray) -> np.ndarray | None:
    wanted = {"none": None, "averaged": averaged, "per_head": per_head}[problem.case.weights]
    return None if wanted is None else np.asarray(wanted).astype(problem.dtype)


def hides_first_key(problem: Problem) -> bool:
    """Whether some query does not see the first key."""
    return bool(problem.hidden()[..., 0].any())


BROKEN: dict[str, tuple[Callable[[Problem], bool], Rule]] = {
    "three-heads": (lambda problem: problem.num_heads >= 3, lambda case: case.heads_count == 3),
    "first-key-hidden": (
        hides_first_key,
        lambda case: case.id == "mha-N1-L2-S2-H1-D1-padding-float64-s93",
    ),
    "half": (
        lambda problem: problem.dtype == np.float16,
        lambda case: case.id == "mha-N1-L2-S2-H1-D1-float16-s0",
    ),
    "out-projection": (
        lambda problem: problem.w_out is not None,
        lambda case: case.id == "mha-N1-L2-S2-H1-D1-outproj-float64-s0",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_attentions_shrink_to_what_breaks_them(name: str) -> None:
    """Judged for real, a broken attention's case shrinks to the one feature that it gets wrong."""
    wrong, minimal = BROKEN[name]
    candidate = attention(wrong)
    start = LARGE.replace(dtype="float16") if name == "half" else LARGE
    check_results = run_case(candidate, start, JudgeSettings()).check_results
    (found,) = [each for each in check_results if each.check == "output"]
    assert found.severity.fails
    left = shrink.shrunk(candidate, found, JudgeSettings())
    assert ("output", True) == (left.check, left.severity.fails)
    assert minimal(left.case), left.case.id
    again = run_case(candidate, left.case, JudgeSettings()).check_results
    assert left in again


def test_the_check_is_kept() -> None:
    """A weights' failure is not shrunk to a case on which only the output fails."""

    def attend(problem: Problem) -> Answer:
        answer = attention(lambda p: p.case.bias == "yes")(problem)
        if answer.weights is None or problem.num_heads < 2:
            return answer
        return replace(answer, weights=answer.weights * problem.dtype.type(1.5))

    candidate = FunctionCandidate("x:f", attend, WHOLE)
    check_results = run_case(candidate, LARGE, JudgeSettings()).check_results
    assert {"output", "weights"} == {each.check for each in check_results if each.severity.fails}
    (found,) = [each for each in check_results if each.check == "weights"]
    left = shrink.shrunk(candidate, found, JudgeSettings())
    assert ("weights", 2) == (left.check, left.case.heads_count)
    assert "no" == left.case.bias


@pytest.mark.repeats(1)
@pytest.mark.parametrize("name", ["exits_hard", "hangs"])
def test_lost_processes_are_shrunk_too(name: str) -> None:
    """A crash or a hang is reduced to four rows of one head of width one, in few restarts."""
    case = parse("qkv-N1-L4-S4-H3-D5-unbatched-float64-s7")
    with client.isolated(f"{SUBJECTS}/misbehaving.py:Sometimes.{name}", timeout=2.0) as candidate:
        (found,) = run_case(candidate, case, JudgeSettings()).check_results
        assert found.severity in {Severity.CRASH, Severity.TIMEOUT}
        left = shrink.shrunk(candidate, found, JudgeSettings())
    assert "qkv-N1-L4-S4-H1-D1-unbatched-float64-s0" == left.case.id
    assert found.severity == left.severity


def test_the_severity_is_kept() -> None:
    """A crash at three heads is not shrunk to a wrong number at one: both fail other checks."""

    def attend(problem: Problem) -> Answer:
        if problem.num_heads >= 3:
            raise CandidateError("crash", f"raised ValueError: {problem.num_heads} heads")
        if problem.query.shape[1] < 4:
            raise CandidateError("crash", f"raised IndexError: {problem.query.shape}")
        return Answer(output=np.zeros(problem.output_shape, problem.dtype))

    candidate = FunctionCandidate("x:f", attend, WHOLE)
    (found,) = run_case(candidate, LARGE, JudgeSettings()).check_results
    left = shrink.shrunk(candidate, found, JudgeSettings())
    assert (found.severity, 3) == (left.severity, left.case.heads_count)
    assert left.detail.startswith("raised ValueError: 3")


def test_the_kind_of_a_wrong_structure_is_kept() -> None:
    """A wrong dtype is not shrunk to a wrong shape, nor a NaN to a wrong number."""

    def attend(problem: Problem) -> Answer:
        right = attention(lambda _: False)(problem)
        if problem.case.dtype == "float32":
            return replace(right, output=right.output.astype(np.float64))
        return replace(right, output=right.output[:, :1])

    candidate = FunctionCandidate("x:f", attend, WHOLE)
    case = LARGE.replace(weights="none", attn="none", padding="none")
    (found,) = run_case(candidate, case, JudgeSettings()).check_results
    assert "dtype" in found.detail
    left = shrink.shrunk(candidate, found, JudgeSettings())
    assert ("float32", True) == (left.case.dtype, "dtype" in left.detail)

    def nan_or_wrong(problem: Problem) -> Answer:
        right = attention(lambda _: True)(problem)
        bias = problem.case.bias == "yes"
        return replace(right, output=right.output * np.nan) if bias else right

    candidate = FunctionCandidate("x:f", nan_or_wrong, WHOLE)
    case = case.replace(bias="yes")
    (found,) = run_case(candidate, case, JudgeSettings()).check_results
    left = shrink.shrunk(candidate, found, JudgeSettings())
    assert ("yes", np.inf) == (left.case.bias, left.error)


def test_a_target_lost_too_often_is_asked_again() -> None:
    """What ends its process on every call is given up in a run, and shrunk all the same."""
    case = parse("qkv-N1-L5-S5-H3-D7-unbatched-float64-s7")
    with client.isolated(f"{SUBJECTS}/misbehaving.py:exits_hard") as candidate:
        outcomes = [run_case(candidate, case, JudgeSettings()).check_results[0] for _ in range(8)]
        assert Severity.INCONCLUSIVE == outcomes[-1].severity
        assert "not asked: " in outcomes[-1].detail
        left = shrink.shrunk(candidate, outcomes[0], JudgeSettings())
    assert (Severity.CRASH, "qkv-N1-L2-S2-H1-D1-unbatched-float64-s0") == (
        left.severity,
        left.case.id,
    )


def test_what_cannot_be_shrunk_is_returned() -> None:
    """A failure that no smaller case shows comes back as it was."""
    found = CheckResult(case=LARGE, check="output", severity=Severity.WRONG, detail="once")
    assert found is shrink.shrunk(attention(lambda _: False), found, JudgeSettings())


def test_what_cannot_be_shrunk_is_measured_by_all_orders() -> None:
    """A brief result gets what all orders allow, as the judge of one case says it."""
    case = parse("qkv-N1-L7-S7-H2-D5-float32-s0")
    zeros, right = (
        FunctionCandidate(name, function, WHOLE)
        for name, function in (
            ("zeros", lambda problem: np.zeros(problem.output_shape, problem.dtype)),
            ("right", lambda problem: reference_answer(problem).output.astype(problem.dtype)),
        )
    )
    brief, whole = (
        run_case(zeros, case, JudgeSettings(brief=flag)).check_results[0] for flag in (True, False)
    )
    assert brief.severity is Severity.WRONG
    assert brief.allowed > whole.allowed
    assert shrink.with_every_order(zeros, brief, JudgeSettings()) == whole
    assert shrink.with_every_order(right, brief, JudgeSettings()) is brief
