"""The a-priori bound holds for attentions that are in no list of ours, and it can be passed."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch

from mha_parity import catalogue
from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.cases.masks import may_hide_by_numbers
from mha_parity.core.arrays import merge_heads, split_heads
from mha_parity.core.case import parse
from mha_parity.core.features import AXES, make_offer
from mha_parity.core.problem import Problem
from mha_parity.oracle.error_bound import ErrorModel, bound, output_error, roundoff, smallest_number
from mha_parity.oracle.reference import reference_answer
from mha_parity.oracle.reference_gradients import reference_gradients
from mha_parity.oracle.row_tails import nan_past_rows

EVERYTHING = {axis: values for axis, values in AXES.items() if axis not in {"dtype", "size"}}
EVERYTHING |= {"bias": {"no": "", "yes": ""}}
SIZES = ("small", "medium", "equal", "ones")
TORCH = {
    "float64": torch.float64, "float32": torch.float32, "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}  # fmt: skip


def problems(count: int, seed: int, dtype: str, **axes: object) -> list[Problem]:
    """Draw problems over all features in one dtype."""
    offered = make_offer(**(EVERYTHING | {"size": SIZES} | axes), dtype=dtype)  # type: ignore[arg-type]  # any axis
    return [make_problem(case) for case in draw_cases(offered, count, seed)]


def heads_of(problem: Problem, work: type) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Project by einsum, one head at a time in effect, and append what is to be appended."""
    found = []
    for which, name in zip("qkv", ("query", "key", "value"), strict=True):
        rows = getattr(problem, name).astype(work)
        weight, bias = getattr(problem, f"w_{which}"), getattr(problem, f"b_{which}")
        if weight is not None:
            rows = np.einsum("nse,fe->nsf", rows, weight.astype(work))
        if bias is not None:
            rows = bias.astype(work) + rows
        row = {"k": problem.bias_k, "v": problem.bias_v}.get(which)
        extra: list[np.ndarray] = [] if row is None else [row.astype(work)]
        extra += [np.zeros(problem.case.embed_dim, work)] * (problem.add_zero_attn and which != "q")
        added = [np.broadcast_to(e, (len(rows), 1, e.size)) for e in extra]
        heads = problem.num_heads if which == "q" else problem.num_kv_heads
        parts = split_heads(np.concatenate((rows, *added), axis=1), heads)
        found.append(np.repeat(parts, problem.num_heads // heads, axis=1))
    return found[0], found[1], found[2]


def out(problem: Problem, heads: np.ndarray, work: type) -> np.ndarray:
    """Apply the output projection, if any."""
    merged = merge_heads(heads)
    if problem.w_out is not None:
        merged = np.einsum("nle,fe->nlf", merged, problem.w_out.astype(work))
        merged = merged if problem.b_out is None else merged + problem.b_out.astype(work)
    return merged


def mask_of(problem: Problem) -> np.ndarray:
    """All masks as one that is added."""
    return np.where(problem.hidden(), -np.inf, problem.additive())


def log_sum_exp(problem: Problem) -> np.ndarray:
    """Weights as exp(logit - log sum exp), keys taken from the last to the first."""
    work = np.float64 if problem.dtype == np.float64 else np.float32
    q, k, v = heads_of(problem, work)
    k, v, mask = k[:, :, ::-1], v[:, :, ::-1], mask_of(problem)[..., ::-1].astype(work)
    logits = np.einsum("nhld,nhsd->nhls", q, k) * work(problem.scale) + mask
    highest = logits.max(axis=-1, keepdims=True)
    total = highest + np.log(np.exp(logits - highest).sum(axis=-1, keepdims=True))
    weights = np.exp(logits - total)
    return out(problem, np.einsum("nhls,nhsd->nhld", weights, v), work)


def without_maximum(problem: Problem) -> np.ndarray:
    """Take exp of the logits as they are: right wherever they stay in its range."""
    work = np.float64 if problem.dtype == np.float64 else np.float32
    q, k, v = heads_of(problem, work)
    root = math.sqrt(abs(problem.scale))
    logits = (q * work(root)) @ k.swapaxes(-1, -2)
    logits = logits * work(math.copysign(root, problem.scale)) + mask_of(problem).astype(work)
    powers = np.exp(logits)
    heads = (powers @ v) * (1 / powers.sum(axis=-1, keepdims=True))
    return out(problem, heads, work)


def in_torch(problem: Problem, *, by_logarithm: bool = False) -> np.ndarray:
    """Use torch operators in the problem's own dtype, rounded after each of them."""
    dtype = TORCH[problem.case.dtype]
    q, k, v = (
        torch.from_numpy(a.astype(np.float64).copy()).to(dtype)
        for a in heads_of(problem, np.float64)
    )
    mask = torch.from_numpy(mask_of(problem)).to(dtype)
    logits = torch.matmul(q, k.transpose(-1, -2)) * problem.scale + mask
    if by_logarithm:
        weights = torch.exp(logits - torch.logsumexp(logits, dim=-1, keepdim=True))
    else:
        weights = torch.softmax(logits, dim=-1)
    heads = torch.matmul(weights, v)
    return out(problem, heads.to(torch.float64).numpy(), np.float64)


RIGHT: dict[str, Callable[[Problem], np.ndarray]] = {
    "log-sum-exp": log_sum_exp,
    "without the maximum": without_maximum,
    "torch operators": in_torch,
    "torch's logarithm": partial(in_torch, by_logarithm=True),
}
MILD = ("normal", "tiny", "large_head", "offset", "ties", "constant")  # exp stays in its range


def units_of(problem: Problem, output: np.ndarray) -> float:
    """Return the largest error in units of the bound."""
    reference = reference_answer(problem)
    with np.errstate(all="ignore"):
        error = np.abs(
            output.astype(problem.dtype).astype(reference.output.dtype) - reference.output
        )
        judged = np.isfinite(reference.output) & ~(nan_past_rows(problem) & np.isnan(error))
        units = np.where(judged, error / bound(problem, reference).output, 0)
    return float(np.nan_to_num(units, nan=np.inf).max(initial=0))


@pytest.mark.parametrize("dtype", AXES["dtype"])
@pytest.mark.parametrize("right", RIGHT)
def test_right_attentions_keep_the_bound(right: str, dtype: str) -> None:
    """Four right attentions, none of them in the order spread, never pass the bound.

    Kills a bound without the rounding of log sum exp to 16 bits.
    """
    unshifted = "maximum" in right
    for problem in problems(30, 21, dtype, **({"regime": MILD} if unshifted else {})):
        # Of a row that a mask lowers at all keys every power is 0 without the maximum.
        if unshifted and may_hide_by_numbers(problem.case, problem.case.seed):
            continue
        with np.errstate(all="ignore"):
            output = RIGHT[right](problem)
        assert units_of(problem, output) <= 1, problem.case.id


@pytest.mark.parametrize("dtype", AXES["dtype"])
def test_the_bound_is_narrow(dtype: str) -> None:
    """On ordinary problems the bound is below as many roundoffs as there are roundings on the way.

    Three dot products of some 30 terms and a softmax of 13: in the median below 256. Projections of
    a head's own channels are bounded as sums over all channels.
    """
    shares, plain = [], {"regime": "normal", "masked_rows": "none", "size": "small"}
    torchs = ("packed", "separate", "none")
    for problem in problems(40, 22, dtype, **plain, projection=torchs):
        reference = reference_answer(problem)
        limits = bound(problem, reference).output
        shares.append(np.median(limits) / np.abs(reference.output).max() / roundoff(problem.dtype))
    assert np.median(shares) < 256


@pytest.mark.parametrize("bug", ["scale-none", "mean-pooling", "softmax-query-axis"])
def test_wrong_attentions_pass_the_bound(bug: str) -> None:
    """The bound can be passed: three gross bugs pass it on every ordinary float32 problem."""
    plain = {"regime": "normal", "size": "small", "masked_rows": "none", "attn": "none"}
    for problem in problems(30, 23, "float32", form="mha", heads="many", padding="none", **plain):
        found = catalogue.catalogue()[bug].attend(problem)
        assert units_of(problem, found.output) > 1, problem.case.id


def test_the_probabilistic_form_is_below_the_deterministic_one() -> None:
    """Long sums: lambda sqrt(n) is less than n, and the bound that informs is below the other."""
    problem = problems(1, 24, "float32", size="medium", heads="many", out_proj="general")[0]
    reference = reference_answer(problem)
    assert (
        np.nanmedian(bound(problem, reference, probabilistic=True).output)
        < np.nanmedian(bound(problem, reference).output)
    )  # fmt: skip


def test_factors_are_highams() -> None:
    """gamma_n = n u / (1 - n u); sums in float32 and one rounding to 16 bits add up."""
    assert ErrorModel(2**-24, 2**-24, 0).error_factor(9, 1) == 10 * 2**-24 / (1 - 10 * 2**-24)
    assert ErrorModel(0.25, 0.25, 0).error_factor(3, 1) == math.inf
    halves = ErrorModel(2**-8, 2**-24, 0).error_factor(64, 1)
    assert 2**-8 < halves < 2**-8 * (1 + 2**-7) + 66 * 2**-24


@pytest.mark.parametrize(
    ("dtype", "unit", "least"),
    [("float64", 2**-53, 2**-1022), ("float32", 2**-24, 2**-126), ("float16", 2**-11, 2**-24)],
)
def test_machine_numbers(dtype: str, unit: float, least: float) -> None:
    """The roundoff is half the step at 1; float16 keeps its subnormal numbers on every machine."""
    assert unit == roundoff(np.dtype(dtype))
    assert least == smallest_number(np.dtype(dtype))


def test_the_output_projection_sums_one_term_a_column_and_its_bias() -> None:
    """Of heads 1 and weights 1 in a width of 3: the factor of 4 sums and 2 roundings, by 3."""
    problem = make_problem(parse("mha-N1-L2-S2-H1-D3-outproj-float32-s53"))
    assert problem.w_out is not None
    ones = problem.replace(w_out=np.ones_like(problem.w_out), b_out=None)
    arithmetic = ErrorModel(2**-24, 2**-24, 2**-126)
    heads = np.ones(problem.output_shape)
    found = output_error(ones, heads, np.zeros_like(heads), arithmetic)
    np.testing.assert_allclose(found, 3 * arithmetic.error_factor(4, 2), rtol=1e-12)


def test_a_mask_may_be_the_first_term_of_a_score() -> None:
    """Products that are added to -1e4 one by one, as in ``baddbmm``, lose some ten roundings of it.

    Kills a bound that counts one sum with the mask.
    """
    problem = make_problem(parse("qkv-N2-L25-S25-H1-D128-floatmask-float64-s493"))
    assert problem.attn_mask is not None
    rows = np.flatnonzero((problem.attn_mask < -5000).all(axis=-1))
    q, k = problem.query[:, rows], problem.key
    scores = np.broadcast_to(problem.attn_mask[rows], (2, len(rows), 25)).copy()
    for d in range(128):
        scores += (q[:, :, None, d] * problem.scale) * k[:, None, :, d]
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    reference = reference_answer(problem)
    error = np.abs(weights - reference.weights[:, 0, rows]).astype(float)
    assert len(rows)
    assert (error <= bound(problem, reference).weights[:, 0, rows]).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_inputs_that_are_read_as_zero_are_within_the_bound(dtype: str) -> None:
    """A product may read subnormal inputs as 0, as the dot products of bfloat16 of AVX-512 do.

    Values of nine tenths of the smallest normal number sum over 48 columns to 43 of them.
    """
    problem = make_problem(parse(f"mha-N2-L1-S1-H3-D16-grad-{dtype}-s0"))
    tiny = smallest_number(problem.dtype)
    ones = np.ones_like(problem.w_v)
    problem = problem.replace(value=np.full_like(problem.value, 0.9 * tiny), w_v=ones)
    zeros = problem.replace(value=np.zeros_like(problem.value))
    right, lost = reference_answer(problem), reference_answer(zeros)
    error = np.abs(lost.output - right.output).astype(float)
    assert (error > 40 * tiny).all()
    assert (error <= bound(problem, right).output).all()
    expected = reference_gradients(problem, right)["in_proj_weight"]
    off = np.abs(reference_gradients(zeros, lost)["in_proj_weight"].value - expected.value)
    assert (off > tiny).any()
    assert (off <= expected.limit).all()
