"""The judge lets right attentions pass, and calls wrong and less accurate what is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

import mha_torch
from mha_parity import catalogue
from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import Answer
from mha_parity.core.case import parse
from mha_parity.core.check_result import CheckResult, Place, Severity
from mha_parity.core.features import AXES, make_offer
from mha_parity.core.problem import Problem
from mha_parity.judging.accuracy import error_over_torch, torch_output
from mha_parity.judging.output import JudgeSettings, judge_answer
from mha_parity.judging.output_groups import judged_array
from mha_parity.judging.tolerance import OrderSpread
from mha_parity.oracle.error_bound import bound
from mha_parity.oracle.eval_orders import (
    EVAL_ORDERS,
    NARROW,
    EvalOrder,
    Prepared,
    attend_in_order,
)
from mha_parity.oracle.reference import Reference, reference_answer
from mha_parity.selftest.calibrate_case import bug_shows, in_float64

EVERYTHING = {axis: values for axis, values in AXES.items() if axis != "dtype"}
PLAIN = make_problem(parse("mha-N3-L5-S7-H2-D4-cross-bias-float32-s41"))
LOUD = make_problem(parse("mha-N3-L5-S7-H4-D6-cross-bias-float32-largehead-s42"))


def problems(count: int, seed: int, dtype: str, **axes: object) -> list[Problem]:
    """Draw problems over all features in one dtype."""
    offered = make_offer(**(EVERYTHING | axes), dtype=dtype)  # type: ignore[arg-type]  # any axis
    return [make_problem(case) for case in draw_cases(offered, count, seed)]


def nearest(problem: Problem, reference: Reference) -> Answer:
    """Return the reference, rounded to the dtype: the best answer there is."""
    with np.errstate(all="ignore"):
        weights = reference.averaged if problem.case.weights == "averaged" else reference.weights
        return Answer(
            output=reference.output.astype(problem.dtype),
            weights=None if problem.case.weights == "none" else weights.astype(problem.dtype),
        )


def from_plain(problem: Problem) -> Answer:
    """Return the answer of the plain attention of the catalogue, which shares no code with ours."""
    return catalogue.answer_of(catalogue.Attention, problem)


def worst(found: list[CheckResult]) -> Severity:
    """Return the worst severity."""
    return max((check_result.severity for check_result in found), key=list(Severity).index)


def output_of(found: list[CheckResult]) -> CheckResult:
    """Return the check result on the output."""
    return next(check_result for check_result in found if check_result.check == "output")


@pytest.mark.parametrize("dtype", AXES["dtype"])
def test_right_answers_never_fail(dtype: str) -> None:
    """The rounded reference, torch itself and a plain attention pass over all features."""
    for problem in problems(70, 31, dtype):
        reference = reference_answer(problem)
        answers = [nearest(problem, reference)]
        if problem.case.size != "empty":
            answers.append(from_plain(problem))
        for answer in answers:
            found = judge_answer(problem, reference, answer)
            assert not any(each.severity.fails for each in found), found
        found = judge_answer(problem, reference, Answer(output=torch_output(problem)))
        assert not output_of(found).severity.fails, found


@pytest.mark.parametrize("dtype", AXES["dtype"])
def test_the_best_answer_there_is_matches(dtype: str) -> None:
    """The reference rounded to the dtype is a match everywhere: the floor is two roundings."""
    for problem in problems(40, 32, dtype):
        found = judge_answer(
            problem, reference := reference_answer(problem), nearest(problem, reference)
        )
        assert Severity.MATCH is worst(found), found


# Each is caught in at least this share of the problems in which it shows; the share is what the
# published calibration leaves of it, and 0 if the judge stops looking at numbers.
PLANTED = {
    "softmax-unnormalised": ("float32", 1.0),
    "scale-dmodel": ("float32", 1.0),
    "heads-interleaved": ("float32", 1.0),
    "mask-ignored": ("float32", 0.9),
    "low-precision-softmax": ("float32", 0.9),
    "low-precision-matmul": ("float32", 0.9),
    "f64-capped-at-f32": ("float64", 1.0),
    "softmax-add-eps": ("float64", 1.0),
    "exp-approximated": ("float64", 1.0),
}


PRECISE_WIDTH = 64
# One of each kind; the others of a kind are for `make test-all`.
OF_A_KIND = {"scale-dmodel", "heads-interleaved", "low-precision-matmul", "softmax-add-eps"}


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    "bug_id", [pytest.param(n, marks=pytest.mark.slow if n in OF_A_KIND else ()) for n in PLANTED]
)
def test_planted_bugs_are_wrong(bug_id: str) -> None:
    """Structural and precision bugs are called wrong wherever they move the answer.

    Precision is held to widths up to 64: the a-priori bound of wider layers covers more digits.
    """
    dtype, least = PLANTED[bug_id]
    bug = catalogue.catalogue()[bug_id]
    shown, caught = 0, 0
    plain = {"size": ("small", "medium"), "regime": ("normal", "large_head", "offset")}
    for problem in problems(60, 33, dtype, masked_rows="none", **plain):
        if bug_id.startswith("low-precision") and problem.case.embed_dim > PRECISE_WIDTH:
            continue
        reference = reference_answer(problem)
        wide = problem if bug.family in {4, 9} else in_float64(problem)
        right, found = from_plain(wide), bug.attend(wide)
        if bug_shows(
            judged_array("output", problem, reference),
            found.output,
            right.output,
            exact_arithmetic=False,
        ):
            shown += 1
            caught += worst(judge_answer(problem, reference, bug.attend(problem))).fails
    assert shown >= 5
    assert caught / shown >= least


@pytest.mark.parametrize("head", range(4))
def test_one_wrong_head_is_seen_beside_a_loud_one(head: int) -> None:
    """Head 0 is 10^4 times louder; a bug in any one head fails, measured by that head's size."""
    reference = reference_answer(LOUD)
    output = nearest(LOUD, reference).output.reshape(3, 5, 4, 6)
    bad = catalogue.catalogue()["scale-none"].attend(LOUD).output.reshape(3, 5, 4, 6)
    output[:, :, head] = bad[:, :, head]
    found = output_of(judge_answer(LOUD, reference, Answer(output=output.reshape(3, 5, 24))))
    assert Severity.WRONG is found.severity
    assert found.where is not None
    assert found.where.head == head
    # What is allowed follows the head: 10^4 times less in the quiet ones.
    assert (found.allowed > 1e-3) == (head == 0)


def test_the_place_of_the_worst_error_is_said() -> None:
    """An error planted at sample 1, head 1, row 3, column 2 is found there, with both numbers."""
    reference = reference_answer(PLAIN)
    output = nearest(PLAIN, reference).output
    output[1, 3, 4 + 2] += 0.5
    found = output_of(judge_answer(PLAIN, reference, Answer(output=output)))
    assert found.where == Place(sample=1, head=1, row=3, column=2)
    assert pytest.approx(0.5, abs=1e-6) == found.error
    assert f"{float(output[1, 3, 6]):.9g}" in found.detail
    assert f"{float(reference.output[1, 3, 6]):.9g}" in found.detail


def shifted(reference: Reference, by: np.ndarray | float) -> Answer:
    """Return the reference with every element too large by ``by``."""
    return Answer(output=(reference.output + by).astype(np.float32))


def test_verdicts_follow_yardstick_and_bound() -> None:
    """Within k times the order spread a match, within the bound less accurate, beyond it wrong."""
    reference = reference_answer(PLAIN)
    limits = bound(PLAIN, reference).output
    judged = judged_array("output", PLAIN, reference)
    *_, spread = OrderSpread.of(PLAIN, reference).errors(judged)
    match = judged.broadcast_groups(4 * spread)
    assert (3 * match < limits).all()  # or the three answers below would not be three
    severities = [
        output_of(judge_answer(PLAIN, reference, shifted(reference, by))).severity
        for by in (0.9 * match, 0.9 * limits, 1.1 * limits)
    ]
    assert [Severity.MATCH, Severity.LESS_ACCURATE, Severity.WRONG] == severities


def test_less_accurate_says_by_what_factor_and_fails_only_on_demand() -> None:
    """The factor to torch's own error is measured; ``max_times_torch`` makes it a failure."""
    reference = reference_answer(PLAIN)
    answer = shifted(reference, 0.9 * bound(PLAIN, reference).output)
    found = output_of(judge_answer(PLAIN, reference, answer))
    assert Severity.LESS_ACCURATE is found.severity
    assert found.times_torch == error_over_torch(PLAIN, reference, answer.output)
    assert f"{found.times_torch:.3g} times torch's own" in found.detail
    strict = output_of(judge_answer(PLAIN, reference, answer, JudgeSettings(max_times_torch=2.0)))
    assert Severity.WRONG is strict.severity
    assert "at most 2" in strict.detail
    generous = output_of(judge_answer(PLAIN, reference, answer, JudgeSettings(max_times_torch=1e6)))
    assert not generous.severity.fails


def test_sums_in_16_bits_are_no_wrong_attention() -> None:
    """A float16 answer that sums its 2000 terms in float16: less accurate, and never wrong.

    Its error is twice the bound. Kills a judge that takes all sums to be in float32.
    """
    problem = make_problem(parse("qkv-N1-L2-S2000-H1-D4-cross-float16-offset-s43"))
    reference = reference_answer(problem)
    output, _ = attend_in_order(Prepared(problem), NARROW)
    found = output_of(judge_answer(problem, reference, Answer(output=output.astype(problem.dtype))))
    assert (abs(output - reference.output) > bound(problem, reference).output).any()
    assert Severity.LESS_ACCURATE is found.severity


@pytest.mark.parametrize(("off", "severity"), [(0, Severity.MATCH), (1e-3, Severity.WRONG)])
def test_a_head_of_zeros_has_a_scale_of_nothing(off: float, severity: Severity) -> None:
    """Its errors are a part of no number: one smallest number is a match, and not inconclusive.

    Kills the share of a tenth asked of such heads too.
    """
    problem = make_problem(parse("qkv-N2-L3-S4-H2-D3-cross-float32-s44"))
    problem = problem.replace(value=np.zeros_like(problem.value))
    output = np.zeros(problem.output_shape, np.float32)
    output[0, 1, 2] = off or np.finfo(np.float32).smallest_normal
    found = output_of(judge_answer(problem, reference_answer(problem), Answer(output=output)))
    assert severity is found.severity


def test_nothing_is_said_where_rounding_is_a_tenth_of_the_answer() -> None:
    """Logits past 180 in bfloat16: an answer as far off as torch's own is inconclusive there."""
    void = [
        output_of(
            judge_answer(problem, reference_answer(problem), Answer(output=torch_output(problem)))
        )
        for problem in problems(40, 34, "bfloat16", regime="huge", size="medium")
    ]
    assert {Severity.MATCH, Severity.INCONCLUSIVE} == {found.severity for found in void}
    unsure = next(found for found in void if found.severity is Severity.INCONCLUSIVE)
    assert "a tenth" in unsure.detail


def test_weights_are_judged_too() -> None:
    """Right output with weights of the wrong head: the weights are wrong, the output is not.

    Kills a sentence on weights that speaks of the output.
    """
    for words in ("weights", "avgweights"):
        problem = make_problem(parse(f"mha-N3-L5-S7-H2-D4-cross-bias-{words}-float32-s43"))
        reference = reference_answer(problem)
        answer = nearest(problem, reference)
        assert answer.weights is not None
        found = judge_answer(problem, reference, replace(answer, weights=answer.weights[..., ::-1]))
        severities = {check_result.check: check_result.severity for check_result in found}
        assert {"output": Severity.MATCH, "weights": Severity.WRONG} == severities
        (said,) = [each.detail for each in found if each.severity.fails]
        assert said.startswith("weights is ")


STRUCTURE: dict[str, tuple[Callable[[np.ndarray], object], str]] = {
    "a list": (lambda a: a.tolist(), "output is of type list, but should be an array."),
    "a row short": (
        lambda a: a[:, 1:],
        "output has the shape (3, 4, 8), but should have (3, 5, 8).",
    ),
    "float64": (
        lambda a: a.astype(np.float64),
        "output has the dtype float64, but should have float32 as the inputs do.",
    ),
    "nothing": (
        lambda a: None,  # noqa: ARG005  (takes what all of these take)
        "output is missing, but an array of shape (3, 5, 8) should be returned.",
    ),
}


@pytest.mark.parametrize("kind", STRUCTURE)
def test_structure_comes_first(kind: str) -> None:
    """Type, shape and dtype are judged before any number, each with got and should be."""
    spoil, sentence = STRUCTURE[kind]
    reference = reference_answer(PLAIN)
    spoilt: object = spoil(nearest(PLAIN, reference).output)
    found = output_of(judge_answer(PLAIN, reference, Answer(output=spoilt)))  # type: ignore[arg-type]  # on purpose
    assert (found.severity, found.detail) == (Severity.STRUCTURE, sentence)


def test_missing_weights_are_a_fault_of_structure() -> None:
    """A case that asks for weights and gets none fails on the weights."""
    problem = make_problem(parse("mha-N3-L5-S7-H2-D4-cross-weights-float32-s44"))
    reference = reference_answer(problem)
    found = judge_answer(problem, reference, Answer(output=nearest(problem, reference).output))
    assert [Severity.MATCH, Severity.STRUCTURE] == [check_result.severity for check_result in found]


def test_nobody_is_judged_by_oracles_that_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the second oracle differs from torch, an error is raised instead of a verdict."""

    def off(logits: np.ndarray) -> np.ndarray:
        powers = np.exp(logits)
        return np.asarray(powers / (powers.sum(axis=-1, keepdims=True) + 1e-6))

    monkeypatch.setattr("mha_torch.plain.softmax", off)
    for words in ("mha-N3-L5-S7-H2-D4-cross-bias", "qkv-N3-L5-S7-H4-D3-G2-cross"):
        with pytest.raises(mha_torch.OraclesDisagreeError):
            reference_answer(make_problem(parse(f"{words}-float32-s45")))


def test_judging_needs_one_order_in_most_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only needed orders are computed: one for most right answers."""
    counted: list[int] = []
    attend = OrderSpread.answers

    def counting(self: OrderSpread):  # type: ignore[no-untyped-def]  # noqa: ANN202  (a generator)
        for answer in attend(self):
            counted.append(1)
            yield answer

    monkeypatch.setattr(OrderSpread, "answers", counting)
    asked = problems(60, 35, "float32", weights="none", size="small")
    for problem in asked:
        judge_answer(problem, reference_answer(problem), from_plain(problem))
    assert len(counted) < 2 * len(asked)


def test_the_orders_asked_for_are_the_orders_measured() -> None:
    """Another request on one problem before changes nothing: each set of orders is its own."""
    problem = PLAIN
    reference = reference_answer(problem)
    whole = len(list(OrderSpread.of(problem, reference).answers()))
    one = len(list(OrderSpread.of(problem, reference, EVAL_ORDERS[:1]).answers()))
    assert (len(EVAL_ORDERS), 1) == (whole, one)


def test_a_judge_measures_by_the_orders_of_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge given two orders asks none beyond them, however wrong the answer is."""
    asked: list[tuple[EvalOrder, ...]] = []
    made = OrderSpread.__init__

    def noting(self: OrderSpread, problem: Problem, orders: tuple[EvalOrder, ...]) -> None:
        asked.append(tuple(orders))
        made(self, problem, orders)

    monkeypatch.setattr(OrderSpread, "__init__", noting)
    problem = PLAIN.replace()
    judge_answer(problem, reference_answer(problem), from_plain(problem),
                 JudgeSettings(orders=EVAL_ORDERS[:2]))  # fmt: skip
    assert EVAL_ORDERS[:2] == asked[0]


@pytest.mark.repeats(2)
@pytest.mark.parametrize("dtype", AXES["dtype"])
def test_a_brief_judge_decides_alike_by_fewer_orders(dtype: str) -> None:
    """The severities are those of all orders, over errors from gross to rounding's own size."""
    briefly, brief = 0, JudgeSettings(brief=True)
    for problem in problems(25, 37, dtype, size=("small", "medium"), weights="per_head"):
        reference = reference_answer(problem)
        right = nearest(problem, reference)
        moved = reference.output[..., ::-1] - reference.output
        for share in (1.0, 1e-2, 1e-4, 1e-6, 0.0):
            with np.errstate(all="ignore"):
                output = (reference.output + share * moved).astype(problem.dtype)
            answer = replace(right, output=output)
            whole = judge_answer(problem, reference, answer)
            found = judge_answer(problem, reference_answer(problem), answer, brief)
            assert [(r.check, r.severity) for r in whole] == [(r.check, r.severity) for r in found]
            kept = ((f, w) for f, w in zip(found, whole, strict=True) if not w.severity.fails)
            assert all(f == w for f, w in kept)
            briefly += output_of(found).allowed > output_of(whole).allowed
    assert briefly > 3


def test_no_order_is_asked_where_none_allows_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight orders a brief judge measures none of zeros, and all of what is close to right."""
    counted: list[int] = []
    answers = OrderSpread.answers

    def counting(self: OrderSpread) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for each in answers(self):
            counted.append(1)
            yield each

    monkeypatch.setattr(OrderSpread, "answers", counting)
    problem = make_problem(parse("mha-N3-L5-S7-H2-D4-cross-bias-float16-s41"))
    reference = reference_answer(problem)
    for output, orders in (
        (np.zeros_like(reference.output), 0), (reference.output * 1.01, len(EVAL_ORDERS)),
    ):  # fmt: skip
        counted.clear()
        answer = Answer(output=output.astype(problem.dtype))
        judge_answer(problem, reference, answer, JudgeSettings(brief=True))
        assert len(counted) == orders
