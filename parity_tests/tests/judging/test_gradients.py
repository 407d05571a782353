"""Gradients are judged by reference, order spread and bound; the reference is right."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import mha_torch
from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import cotangent, make_problem
from mha_parity.core.arrays import merge_heads, split_heads
from mha_parity.core.candidate import Answer
from mha_parity.core.case import parse
from mha_parity.core.check_result import CheckResult, Severity
from mha_parity.core.features import AXES, make_offer
from mha_parity.core.problem import Problem
from mha_parity.judging.gradient_groups import group_rows
from mha_parity.judging.gradients import judge_gradients
from mha_parity.judging.output import JudgeSettings
from mha_parity.oracle import reference_gradients as module
from mha_parity.oracle.backward import backward
from mha_parity.oracle.error_bound import error_model
from mha_parity.oracle.eval_orders import EvalOrder, Prepared
from mha_parity.oracle.eval_orders_vjp import pull_back
from mha_parity.oracle.reference import reference_answer
from mha_parity.oracle.reference_gradients import reference_gradients

EVERYTHING = {
    axis: values for axis, values in AXES.items() if axis not in {"dtype", "size", "weights"}
}
RICH = make_problem(
    parse("mha-N3-L5-S7-H2-D4-cross-bias-biaskv-outproj-floatpadding-floatmask3d-float32-s91")
)
GROUPED = make_problem(parse("qkv-N3-L5-S7-H4-D3-G2-V5-cross-floatmask-scaled-float32-s92"))
OTHERS = (
    EvalOrder(scale_at="both", sums="pairwise", normalise="after", keys=3, rounding="ends"),
    EvalOrder(scale_at="late", base2=True, sums="sequential", projection="sequential"),
)


def problems(count: int, seed: int, dtype: str) -> list[Problem]:
    """Draw problems over all features in one dtype."""
    offered = make_offer(**EVERYTHING, size=("small", "medium", "equal", "ones"), dtype=dtype)
    return [make_problem(case) for case in draw_cases(offered, count, seed)]


def rounded(problem: Problem, found: dict[str, np.ndarray]) -> Answer:
    """Return an answer that has gradients alone."""
    summed = {name: problem.sum_shared_heads(name, array) for name, array in found.items()}
    stored = {name: array.astype(problem.dtype) for name, array in summed.items()}
    return Answer(output=np.zeros(problem.output_shape), gradients=stored)


def judged(problem: Problem, found: dict[str, np.ndarray]) -> list[CheckResult]:
    """Judge gradients."""
    return judge_gradients(problem, reference_answer(problem), rounded(problem, found))


def right(problem: Problem) -> dict[str, np.ndarray]:
    """Return the reference gradients."""
    return {n: g.value for n, g in reference_gradients(problem, reference_answer(problem)).items()}


@pytest.mark.repeats(2)
@pytest.mark.parametrize("dtype", AXES["dtype"])
def test_right_gradients_never_fail(dtype: str) -> None:
    """Two orders outside the order spread, and the rounded reference, pass in all features."""
    for problem in problems(25, 93, dtype):
        answers = [pull_back(Prepared(problem), order, cotangent(problem)) for order in OTHERS]
        with np.errstate(all="ignore"):
            for found in (*answers, right(problem)):
                for check_result in judged(problem, found):
                    assert not check_result.severity.fails, check_result


@pytest.mark.parametrize(
    ("dtype", "severity"), [("float16", Severity.LESS_ACCURATE), ("float64", Severity.WRONG)]
)
def test_sums_in_16_bits_are_less_accurate(dtype: str, severity: Severity) -> None:
    """A bias' gradient summed over 258 rows in float16 is wrong only of inputs in float64."""
    problem = make_problem(parse(f"mha-N2-L129-S3-H8-D16-cross-bias-outproj-{dtype}-s94"))
    found = right(problem)
    rows = cotangent(problem).astype(np.float16).reshape(-1, 128)
    found["out_proj.bias"] = np.add.reduce(rows, axis=0).astype(problem.dtype)
    every = {each.check: each.severity for each in judged(problem, found)}
    assert severity is every["gradient of out_proj.bias"], every


def test_a_brief_judge_measures_sums_in_16_bits() -> None:
    """They err by more than the bound, and are not wrong: what is allowed is that of all orders.

    Kills a bound that is asked without the order that sums in 16 bits. With k = 1 the bound alone
    is less than such a sum errs by.
    """
    problem = make_problem(parse("mha-N2-L513-S3-H1-D8-cross-bias-outproj-float16-s94"))
    found = right(problem)
    rows = cotangent(problem).astype(np.float16).reshape(-1, 8)
    found["out_proj.bias"] = np.add.reduce(rows, axis=0)
    reference, answer = reference_answer(problem), rounded(problem, found)
    whole, brief = (
        judge_gradients(problem, reference, answer, JudgeSettings(k=1, brief=flag))
        for flag in (False, True)
    )
    severities = {each.check: each.severity for each in whole}
    assert Severity.LESS_ACCURATE is severities["gradient of out_proj.bias"]
    assert whole == brief


@pytest.mark.parametrize("dtype", AXES["dtype"])
def test_a_brief_judge_decides_alike_by_the_bound(dtype: str) -> None:
    """The severities are those of all orders, and all that is said of what is not wrong."""
    briefly, brief = 0, JudgeSettings(brief=True)
    for problem in problems(6, 51, dtype):
        reference, own = reference_answer(problem), right(problem)
        for share in (1.0, 1e-2, 1e-4, 1e-6, 0.0):
            with np.errstate(all="ignore"):
                answer = rounded(problem, {n: a + share * a[..., ::-1] for n, a in own.items()})
            whole = judge_gradients(problem, reference, answer)
            found = judge_gradients(problem, reference, answer, brief)
            assert [(r.check, r.severity) for r in whole] == [(r.check, r.severity) for r in found]
            pairs = list(zip(found, whole, strict=True))
            assert all(f == w for f, w in pairs if w.severity is not Severity.WRONG)
            briefly += sum(f.allowed > w.allowed for f, w in pairs)
    assert briefly > 3


@pytest.mark.parametrize("problem", [RICH, GROUPED], ids=["layer", "grouped"])
def test_every_gradient_there_is_gets_judged(problem: Problem) -> None:
    """Inputs, all weights and biases, bias_k and bias_v, float masks: one check result each."""
    names = {"query", "key", "value", "attn_mask"}
    if problem is RICH:
        names |= {"key_padding_mask", *problem.state()}
    found = judged(problem, right(problem))
    assert {check_result.check for check_result in found} == {f"gradient of {n}" for n in names}
    assert {Severity.MATCH} == {check_result.severity for check_result in found}


def test_torch_in_float32_passes() -> None:
    """Torch's own autograd in float32, along its function on projected Q, K, V, matches."""
    query, key, value = (
        torch.from_numpy(split_heads(rows, heads).copy()).requires_grad_()
        for rows, heads in ((GROUPED.query, 4), (GROUPED.key, 2), (GROUPED.value, 2))
    )
    mask = torch.from_numpy(GROUPED.attn_mask).requires_grad_()
    output = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=GROUPED.given_scale, enable_gqa=True
    )
    given = torch.from_numpy(split_heads(cotangent(GROUPED), 4).copy())
    found = torch.autograd.grad((output * given).sum(), (query, key, value, mask))
    arrays = [each.numpy() for each in found]
    rows = (*map(merge_heads, arrays[:3]), arrays[3])
    named = dict(zip(("query", "key", "value", "attn_mask"), rows, strict=True))
    assert {Severity.MATCH} == {check_result.severity for check_result in judged(GROUPED, named)}


def test_the_gold_is_the_slope_of_the_output() -> None:
    """Central differences of torch's float64 output along a random direction give the reference."""
    rng = np.random.Generator(np.random.Philox(94))
    wide = make_problem(parse(RICH.case.id.replace("float32", "float64")))
    step = 2.0**-17  # step^2 and eps / step are about the same
    for name, gradient in right(wide).items():
        array = {"query": wide.query, "key": wide.key, "value": wide.value}.get(name)
        if array is None:
            continue
        direction = rng.standard_normal(array.shape)
        ahead, behind = (
            reference_answer(wide.replace(**{name: array + sign * step * direction})).output
            for sign in (1, -1)
        )
        slope = float(((ahead - behind) * cotangent(wide)).sum() / (2 * step))
        expected = float((gradient * direction).sum())
        assert pytest.approx(expected, rel=1e3 * step**2) == slope


@pytest.mark.parametrize(
    "name", ["query", "in_proj_weight", "out_proj.weight", "bias_v", "attn_mask"]
)
def test_planted_errors_are_seen_in_each_gradient(name: str) -> None:
    """A factor of 1.001 on one gradient is wrong there, and nowhere else."""
    found = right(RICH)
    found[name] = found[name] * 1.001
    severities = {each.check: each.severity for each in judged(RICH, found)}
    assert Severity.WRONG is severities.pop(f"gradient of {name}")
    assert {Severity.MATCH} == set(severities.values())


def test_a_transposed_head_is_seen_beside_a_loud_one() -> None:
    """Head 0 is 10^4 times louder; the weights of head 1 are judged by their own size."""
    problem = make_problem(parse("mha-N3-L5-S7-H3-D4-cross-bias-float32-largehead-s95"))
    found = right(problem)
    weight = found["in_proj_weight"].reshape(3, 3, 4, 12).copy()
    weight[0, 1] = weight[0, 1, ::-1]
    found["in_proj_weight"] = weight.reshape(36, 12)
    wrong = [each.check for each in judged(problem, found) if each.severity.fails]
    assert ["gradient of in_proj_weight"] == wrong


def test_missing_and_misshapen_gradients_are_faults_of_structure() -> None:
    """What is not there, and what has another shape or dtype, is named with got and should be."""
    found = rounded(GROUPED, right(GROUPED)).gradients
    assert found is not None
    del found["query"]
    found["key"] = found["key"][:, 1:]
    found["value"] = found["value"].astype(np.float64)
    answer = Answer(output=np.zeros(GROUPED.output_shape), gradients=found)
    details = {
        each.check: each.detail
        for each in judge_gradients(GROUPED, reference_answer(GROUPED), answer)
        if each.severity is Severity.STRUCTURE
    }
    assert details["gradient of query"].startswith("gradient of query is missing")
    assert "(3, 6, 6), but should have (3, 7, 6)" in details["gradient of key"]
    assert "dtype float64, but should have float32" in details["gradient of value"]


def test_nan_is_no_gradient() -> None:
    """One NaN in one gradient is wrong where no row is fully masked."""
    found = right(RICH)
    found["value"] = found["value"].copy()
    found["value"][1, 2, 3] = np.nan
    wrong = [each for each in judged(RICH, found) if each.severity.fails]
    assert ["gradient of value"] == [each.check for each in wrong]
    assert "nan at sample 1, row 2, column 3" in wrong[0].detail


MASKED = "mha-N3-L5-S7-H2-D4-cross-bias-boolmask3d-maskedrows-float32-s96"


def test_a_masked_row_leaves_the_gradients_of_others_alone() -> None:
    """The reference is finite where a row sees no key; torch's NaN is named, not failed."""
    problem = make_problem(parse(MASKED))
    assert {True} == {bool(np.isfinite(array).all()) for array in right(problem).values()}
    torchs = module.torch_gradients(problem, cotangent(problem))
    assert np.isnan(torchs["in_proj_weight"]).any()
    found = judged(problem, torchs)
    assert not any(each.severity.fails for each in found)
    assert any("pytorch#41508" in each.detail for each in found)
    assert {Severity.MATCH} == {each.severity for each in judged(problem, right(problem))}


def test_nan_of_a_masked_row_hides_nothing_else() -> None:
    """Where torch's NaN is let pass, a wrong number beside it and an infinity are still wrong."""
    problem = make_problem(parse(MASKED))
    torchs = module.torch_gradients(problem, cotangent(problem))
    weight = torchs["in_proj_weight"]
    row, column = np.argwhere(np.isfinite(weight))[0]
    for bad in (weight[row, column] + 1, np.inf):
        weight[row, column] = bad
        wrong = [each for each in judged(problem, torchs) if each.severity.fails]
        assert ["gradient of in_proj_weight"] == [each.check for each in wrong]
        assert wrong[0].where is not None
        assert (wrong[0].where.row, wrong[0].where.column) == (row, column)


def test_a_gradient_too_large_for_the_dtype_is_infinite() -> None:
    """Half precision ends at 65504: a larger gradient is infinity there, of the same sign."""
    problem = make_problem(parse("mha-N3-L5-S7-H2-D4-cross-outproj-float16-s98"))
    loud = problem.replace(value=problem.value * np.float16(10_000))
    found = right(loud)
    assert np.abs(found["out_proj.weight"]).max() > 66_000
    with np.errstate(over="ignore"):
        assert not any(each.severity.fails for each in judged(loud, found))
        found["out_proj.weight"] = -found["out_proj.weight"]
        assert any(each.severity.fails for each in judged(loud, found))


def test_the_gold_of_a_masked_row_is_that_of_the_problem_without_it() -> None:
    """Unmasking the row and giving it no cotangent leads torch to the same gradients."""
    problem = make_problem(parse(MASKED))
    rows = np.asarray(problem.masked_rows())
    assert problem.attn_mask is not None
    mask = problem.attn_mask.reshape(3, 2, 5, 7).copy()
    mask[rows] = False
    given = cotangent(problem).reshape(3, 5, 2, 4).copy()
    given[rows.swapaxes(1, 2)] = 0
    opened = problem.replace(attn_mask=mask.reshape(6, 5, 7))
    expected = module.torch_gradients(opened, given.reshape(3, 5, 8))
    actual = reference_gradients(problem, reference_answer(problem))
    for name, gradient in actual.items():
        assert (np.abs(gradient.value - expected[name]) <= 2.0**-29 * gradient.limit).all(), name


def test_nobody_is_judged_by_oracles_that_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch autograd and NumPy differ, an error is raised instead of a verdict."""
    original = module.torch_gradients

    def off(problem: Problem, given: np.ndarray) -> dict[str, np.ndarray]:
        found = original(problem, given)
        return found | {"key": found["key"] * (1 + 1e-9)}

    monkeypatch.setattr(module, "torch_gradients", off)
    with pytest.raises(mha_torch.OraclesDisagreeError, match="gradient of key"):
        reference_gradients(RICH, reference_answer(RICH))


def test_the_key_bias_has_no_gradient() -> None:
    """Softmax forgets what all keys share: what rounding explains is a match, all else is wrong."""
    problem = make_problem(parse("mha-N3-L5-S7-H2-D4-cross-bias-float32-s97"))
    found = right(problem)
    limit = reference_gradients(problem, reference_answer(problem))["in_proj_bias"].limit
    assert np.abs(found["in_proj_bias"][8:16]).max() < 1e-12
    assert np.abs(found["in_proj_bias"]).max() > 0.1
    noise = pull_back(Prepared(problem), OTHERS[0], cotangent(problem))
    assert {Severity.MATCH} == {each.severity for each in judged(problem, noise)}
    for part, severity in ((0.9, Severity.MATCH), (1.1, Severity.WRONG)):
        moved = found["in_proj_bias"].copy()
        moved[8:16] = part * limit[8:16]
        severities = {j.check: j.severity for j in judged(problem, found | {"in_proj_bias": moved})}
        assert severities["gradient of in_proj_bias"] is severity


def test_the_bound_holds_and_is_narrow() -> None:
    """Orders stay within the bound; on an ordinary problem it is below 2000 roundoffs."""
    limits = backward(RICH, reference_answer(RICH), cotangent(RICH), error_model(RICH.dtype))
    for name, array in pull_back(Prepared(RICH), OTHERS[1], cotangent(RICH)).items():
        assert (np.abs(array - limits[name].value) <= limits[name].error).all(), name
        share = np.median(limits[name].error) / np.abs(limits[name].value).max()
        assert share < 2000 * 2.0**-24, name


def test_groups_separate_heads() -> None:
    """Each array has a row for every head, sample, or sample and head."""
    state = RICH.state()
    rows = {name: len(group_rows(RICH, name, array)) for name, array in state.items()}
    assert {
        "in_proj_weight": 6, "in_proj_bias": 6, "bias_k": 2, "bias_v": 2, "out_proj.weight": 2,
        "out_proj.bias": 1,
    } == rows  # fmt: skip
    assert 3 == len(group_rows(RICH, "query", RICH.query))
    assert 6 == len(group_rows(GROUPED, "key", GROUPED.key))
    assert RICH.attn_mask is not None
    assert 6 == len(group_rows(RICH, "attn_mask", RICH.attn_mask))


def test_the_cotangent_is_drawn_from_the_case() -> None:
    """The same case has the same cotangent; it is not constant, and no draw of the problem."""
    again = make_problem(RICH.case)
    assert np.array_equal(cotangent(RICH), cotangent(again))
    assert math.isclose(float(np.std(cotangent(RICH))), 1, rel_tol=0.3)
    assert not np.array_equal(cotangent(RICH), RICH.query)


@pytest.mark.parametrize(("sizes", "count"), [("L3-S0", 0), ("L0-S4", 0), ("L3-S4", 4)])
def test_an_empty_problem_has_no_gradients(sizes: str, count: int) -> None:
    """Without a query or a key nothing is differentiated; else each missing gradient fails.

    Kills the number of heads taken for that of keys.
    """
    problem = make_problem(parse(f"mha-N2-{sizes}-H2-D2-cross-grad-float64-s9"))
    assert count == len(judged(problem, {}))


@pytest.mark.parametrize("fill", [-1e9, -1e30])
def test_gradients_are_not_judged_through_rows_that_are_made_of_values(fill: float) -> None:
    """A number that is added leaves some digits of large scores in float32, or none of them.

    Where no key is seen the row is then neither zeros nor the mean, and its gradient is no zero.
    """
    problem = make_problem(parse("qkv-N2-L5-S7-H2-D4-cross-boolmask-maskedrows-float32-peaky-s3"))
    assert problem.attn_mask is not None
    leaves = {name: torch.tensor(getattr(problem, name)).requires_grad_() for name in
              ("query", "key", "value")}  # fmt: skip
    q, k, v = (torch.unflatten(each, -1, (2, 4)).transpose(1, 2) for each in leaves.values())
    scores = q @ k.transpose(-2, -1) / 2.0 + torch.tensor(problem.attn_mask) * fill
    output = (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)
    found = torch.autograd.grad(output, [*leaves.values()], torch.tensor(cotangent(problem)))
    answer = Answer(
        output=output.detach().numpy(),
        gradients={name: each.numpy() for name, each in zip(leaves, found, strict=True)},
    )
    reference = reference_answer(problem)
    assert not any(each.severity.fails for each in judge_gradients(problem, reference, answer))
    unseen = np.asarray(problem.masked_rows()).any(axis=1)
    zeros = np.where(np.expand_dims(unseen, -1), 0, answer.output)
    as_zeros = Answer(output=zeros, gradients=answer.gradients)
    assert any(each.severity.fails for each in judge_gradients(problem, reference, as_zeros))
