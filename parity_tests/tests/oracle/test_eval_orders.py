"""Legitimate orders are right, are not one and the same, and sum as they say."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.cases.rng import numpy_dtype
from mha_parity.core.arrays import merge_heads, split_heads
from mha_parity.core.case import parse
from mha_parity.core.features import AXES, make_offer
from mha_parity.core.problem import Problem
from mha_parity.oracle.error_bound import bound
from mha_parity.oracle.eval_orders import (
    EVAL_ORDERS,
    NARROW,
    Arithmetic,
    EvalOrder,
    Prepared,
    attend_in_order,
)
from mha_parity.oracle.reference import reference_answer

EVERYTHING = {axis: values for axis, values in AXES.items() if axis != "dtype"}
EVERYTHING |= {"bias": {"no": "", "yes": ""}}


def problems(count: int, seed: int, dtype: str) -> list[Problem]:
    """Draw problems over all features in one dtype."""
    return [
        make_problem(case)
        for case in draw_cases(make_offer(**EVERYTHING, dtype=dtype), count, seed)
    ]


def worst_units(actual: np.ndarray, expected: np.ndarray, allowed: np.ndarray) -> float:
    """Return the largest error in units of what is allowed, where the reference is a number."""
    with np.errstate(all="ignore"):
        units = np.where(np.isfinite(expected), np.abs(actual - expected) / allowed, 0)
    return float(np.nan_to_num(units, nan=np.inf).max(initial=0))


def test_there_are_six_orders_and_more() -> None:
    """Scale early, on K and late; exp and exp2; two block sizes; three sums; both normalisings."""
    assert len(set(EVAL_ORDERS)) >= 6
    for attribute, least in {
        "scale_at": 4, "base2": 2, "keys": 3, "sums": 4, "projection": 4, "normalise": 2,
        "per_head": 2, "rounding": 3,
    }.items():  # fmt: skip
        assert len({getattr(order, attribute) for order in EVAL_ORDERS}) >= least, attribute


@pytest.mark.parametrize("dtype", AXES["dtype"])
def test_every_order_keeps_the_bound(dtype: str) -> None:
    """No order strays further from the reference than rounding explains, in any feature."""
    for problem in problems(40, 11, dtype):
        reference, prepared = reference_answer(problem), Prepared(problem)
        limits = bound(problem, reference)
        for order in EVAL_ORDERS:
            output, weights = attend_in_order(prepared, order)
            if (dtype, order.normalise) == ("float16", "after") and np.isinf(output).any():
                continue  # a sum before the division passes the range: no order spread has it
            assert worst_units(output, reference.output, limits.output) <= 1, (
                problem.case.id,
                order,
            )
            assert worst_units(weights, reference.weights, limits.weights) <= 1, (
                problem.case.id,
                order,
            )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_two_orders_are_the_same_arithmetic(dtype: str) -> None:
    """On an ordinary problem any two orders differ in some bit: each adds to the order spread."""
    case = draw_cases(make_offer(dtype=dtype, size="medium", regime="normal"), 1, 3)[0]
    prepared = Prepared(make_problem(case))
    answers = [attend_in_order(prepared, order) for order in EVAL_ORDERS]
    for (first, _), (second, _) in combinations(answers, 2):
        assert not np.array_equal(first, second)


def test_a_dropped_mask_does_not_keep_the_bound() -> None:
    """The comparison above can fail: an order that forgets the mask is far outside."""
    case = draw_cases(
        make_offer(attn="float3d", dtype="float32", size="small", regime="normal"), 1, 5
    )[0]
    problem = make_problem(case)
    reference = reference_answer(problem)
    output, _ = attend_in_order(Prepared(problem.replace(attn_mask=None)), EVAL_ORDERS[0])
    assert worst_units(output, reference.output, bound(problem, reference).output) > 1


@pytest.mark.parametrize("sums", ["blas", "sequential", "pairwise", "blocked"])
def test_every_sum_is_a_product(sums: str) -> None:
    """All ways to sum give the exact product of small integers, which no rounding touches."""
    left = np.arange(2 * 3 * 11, dtype=np.float32).reshape(2, 3, 11)
    right = np.arange(2 * 5 * 11, dtype=np.float32).reshape(2, 5, 11) % 7
    arithmetic = Arithmetic(np.dtype(np.float32), EvalOrder())
    actual = arithmetic.product(left, right, sums)  # type: ignore[arg-type]  # the four literals
    assert np.array_equal(np.einsum("nie,nje->nij", left, right), actual)


def test_sequential_sums_go_from_left_to_right() -> None:
    """2^24 + 1 + 1 stays 2^24 in float32 when summed from the left, and not from the right."""
    terms = np.array([[[2.0**24, 1, 1]]], dtype=np.float32)
    ones = np.ones((1, 1, 3), dtype=np.float32)
    arithmetic = Arithmetic(np.dtype(np.float32), EvalOrder(sums="sequential"))
    assert arithmetic.product(terms, ones, "sequential").item() == 2.0**24
    assert arithmetic.sum(terms, "sequential").item() == 2.0**24
    assert arithmetic.sum(terms[..., ::-1], "sequential").item() == 2.0**24 + 2


def test_narrow_sums_round_at_each_step() -> None:
    """Summed in bfloat16 itself, 256 + 1 stays 256: its significand has 8 bits."""
    import ml_dtypes

    row = np.array([[[256.0] + [1.0] * 8]], dtype=np.float32)
    arithmetic = Arithmetic(np.dtype(ml_dtypes.bfloat16), NARROW)
    assert 256 == arithmetic.sum(row, "sequential").item()
    wide = Arithmetic(np.dtype(ml_dtypes.bfloat16), EvalOrder())
    assert wide.sum(row, "sequential").item() == math.fsum(row.ravel())


@pytest.mark.parametrize("dtype", AXES["dtype"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 9, 16), (1, 3, 1), (3, 70, 61)])
@pytest.mark.parametrize("order", [EvalOrder(), NARROW], ids=["wide", "narrow"])
def test_sequential_sums_are_those_of_a_loop(
    dtype: str, shape: tuple[int, int, int], order: EvalOrder
) -> None:
    """To the bit, in all dtypes and layouts: NumPy would add what is last in memory in pairs."""
    samples, rows, columns = shape
    rng = np.random.default_rng(7)
    arithmetic = Arithmetic(numpy_dtype(dtype), order)
    left: np.ndarray = rng.normal(size=(samples, 40, rows)).astype(arithmetic.work)
    left, right = left.swapaxes(-1, -2), rng.normal(size=(columns, 40)).astype(arithmetic.work)
    half = order.narrow and arithmetic.half
    total: np.ndarray = np.zeros((samples, rows, columns), arithmetic.work)
    for place in range(40):
        term: np.ndarray = left[..., place, None] * right[:, place]
        term = term.astype(dtype).astype(np.float32) if half else term
        total = total + term
        total = total.astype(dtype).astype(np.float32) if half else total
    assert np.array_equal(total, arithmetic.product(left, right, "sequential"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_sample_alone_sums_in_16_bits_as_among_others(dtype: str) -> None:
    """The order that sums in the dtype gives each sample the same bits without the others."""
    for problem in problems(12, 13, dtype):
        prepared = Prepared(problem)
        whole = attend_in_order(prepared, NARROW)
        for sample in range(problem.case.batch):
            alone = attend_in_order(prepared.of_sample(sample), NARROW)
            for one, among in zip(alone, whole, strict=True):
                assert np.array_equal(one[0], among[sample], equal_nan=True), problem.case.id


def test_a_single_element_is_summed_from_the_first_term_to_the_last() -> None:
    """NumPy adds over the axis that is last in memory in pairs. Kills the batch counted for it."""
    rng = np.random.Generator(np.random.Philox(3))
    left, right = rng.standard_normal((2, 2, 1, 1001)).astype(np.float32)
    total = np.zeros(2, np.float32)
    for term in (left * right)[:, 0].T:
        total += term
    arithmetic = Arithmetic(np.dtype(np.float32), EvalOrder(sums="sequential"))
    assert np.array_equal(
        total[:, None, None], arithmetic.product(left[:, None], right[:, None], "sequential")[:, 0]
    )
    assert not np.array_equal(total, (left * right).sum(axis=-1)[:, 0])


def test_the_first_order_is_torchs_own() -> None:
    """To the bit: packed products, q scaled, softmax divided before the values.

    Kills another default of `EvalOrder`.
    """
    case = parse("mha-N2-L5-S7-H3-D4-cross-bias-outproj-floatmask-float32-s60")
    problem = make_problem(case)
    arrays = Prepared(problem)

    def projected(which: str, name: str) -> np.ndarray:
        rows = np.matmul(arrays[name], arrays[f"w_{which}"].T) + arrays[f"b_{which}"]
        return split_heads(rows, 3)

    q, k, v = (projected(*pair) for pair in (("q", "query"), ("k", "key"), ("v", "value")))
    scores = np.matmul(q * np.float32(0.5), k.swapaxes(2, 3)) + arrays.mask
    powers = np.exp(scores - scores.max(axis=3, keepdims=True))
    weights = powers / powers.sum(axis=3, keepdims=True)
    output = np.matmul(merge_heads(np.matmul(weights, v)), arrays["w_out"].T) + arrays["b_out"]
    found = attend_in_order(arrays, EVAL_ORDERS[0])
    assert np.array_equal(output, found[0])
    assert np.array_equal(weights, found[1])


def test_the_first_order_rounds_stages_to_16_bits() -> None:
    """What one stage hands to the next is rounded, what an operation hands to the next is not."""
    dtype = numpy_dtype("bfloat16")
    arithmetic = Arithmetic(dtype, EVAL_ORDERS[0])
    third = np.full(1, 1 / 3, np.float32)
    near = third.astype(dtype).astype(np.float32)
    assert near != third
    found = [arithmetic.step(third), arithmetic.stage(third), arithmetic.end(third)]
    assert [third, near, near] == found
