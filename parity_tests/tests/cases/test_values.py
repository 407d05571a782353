"""Values of cases: normal, exact in products, at the ends of exp, and the same in any memory."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem, scale_factor
from mha_parity.cases.memory_layout import copy_in_layout
from mha_parity.cases.rng import SPREAD, Stream, numpy_dtype, round_once
from mha_parity.catalogue import Attention
from mha_parity.core.case import Case, parse
from mha_parity.core.features import AXES
from mha_parity.oracle.reference import reference_answer


def test_values_are_near_normal() -> None:
    """Drawn values have mean 0 and standard deviation 1 within sampling error."""
    drawn = Stream(3).normal(200_000)

    assert abs(drawn.mean()) < 4 / np.sqrt(drawn.size)
    assert abs(drawn.std() - 1) < 4 / np.sqrt(2 * drawn.size)


def test_a_product_of_drawn_values_is_exact() -> None:
    """Sums of products of drawn integers stay below 2**53, so any BLAS gives the same bits."""
    width = 4096

    assert width * (2 * 0xFFFF) ** 2 < 2**53
    x, w = Stream(1).integers(3, 97), Stream(2).integers(97, 5)
    exact = [
        [sum(int(a) * int(b) for a, b in zip(row, col, strict=True)) for col in w.T] for row in x
    ]

    assert exact == (x @ w).astype(object).astype(int).tolist()


def test_bfloat16_is_rounded_once() -> None:
    """Beside a tie the nearer number is stored, at a tie the even one, as exact rounding has it.

    Kills rounding by way of float32, which takes what lies 2**-40 beside a tie for the tie.
    """
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    steps = np.ldexp(np.arange(128, 256), -7)  # all numbers of bfloat16 from 1 to 2
    ties, even = steps + 2.0**-8, np.where(np.arange(128) % 2, steps + 2.0**-7, steps)
    for power in (0, -20, 60, -126):
        for sign in (1.0, -1.0):
            scale = sign * 2.0**power
            for moved, expected in (
                (ties, even),
                (ties + 2.0**-40, steps + 2.0**-7),
                (ties - 2.0**-40, steps),
                (steps, steps),
            ):
                found = round_once(moved * scale, numpy_dtype("bfloat16")).astype(np.float64)
                assert (expected * scale).tolist() == found.tolist()
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, -1e-300])
    found = round_once(special, numpy_dtype("bfloat16")).astype(np.float64)
    assert ["0.0", "-0.0", "inf", "-inf", "nan", "inf", "-inf", "-0.0"] == list(map(str, found))


def test_half_of_the_float_masks_hide_by_a_finite_number() -> None:
    """Programs write -1e4 and -1e9 for -inf; one row is lowered as a whole, the rest as without."""
    least = []
    for seed in range(40):
        mask = make_problem(parse(f"qkv-N2-L5-S7-H2-D3-floatmask3d-float64-s{seed}")).attn_mask
        assert mask is not None
        lowered = (mask < -5000).all(axis=-1)
        is_finite = bool(np.isfinite(mask).all()) and bool((mask < -5000).any())
        assert lowered.sum() == is_finite
        least.append(float(mask[~lowered].min()) if is_finite else -np.inf)

    assert {-1e4, -1e9, -np.finfo("float64").max, -np.inf} == set(least)
    assert 10 < sum(each > -np.inf for each in least) < 30


def test_self_attention_is_one_object() -> None:
    """Self-attention passes one array three times, as torch's fast path wants it."""
    problem = make_problem(parse("mha-N2-L5-S5-H3-D4-float32-s1"))

    assert problem.query is problem.key
    assert problem.key is problem.value


@pytest.mark.parametrize("regime", ["huge", "very_negative", "peaky"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_regimes_reach_where_they_should(regime: str, dtype: str) -> None:
    """Huge logits pass the range of exp, low ones sink below it, peaked ones have sd near 10."""
    case = Case(seed=7, batch=2, queries=13, keys=11, heads_count=3, head_dim=5, inputs="cross",
                bias="yes", dtype=dtype, regime=regime)  # fmt: skip
    p = make_problem(case)
    assert p.w_q is not None
    assert p.w_k is not None
    q = (p.query.astype(float) @ p.w_q.T + p.b_q).reshape(2, 13, 3, 5)
    k = (p.key.astype(float) @ p.w_k.T + p.b_k).reshape(2, 11, 3, 5)
    logits = np.einsum("nlhd,nshd->nhls", q, k) * p.scale
    limit = {"float32": 88.0, "float64": 709.0}[dtype]

    assert {"huge": logits.max() > limit, "very_negative": logits.max() < -limit / 2,
            "peaky": 5 < logits.std() < 25}[regime]  # fmt: skip


@pytest.mark.parametrize("form", ["mha", "qkv"])
@pytest.mark.parametrize(("regime", "sign"), [("rising", 1), ("falling", -1)])
def test_logits_rise_or_fall_along_the_keys(regime: str, sign: int, form: str) -> None:
    """The last third of the keys has larger logits than the first third, or smaller ones."""
    case = Case(seed=7, batch=2, queries=13, keys=12, heads_count=3, head_dim=5, inputs="cross",
                bias="yes" if form == "mha" else "no", form=form, regime=regime,
                projection="packed" if form == "mha" else "none")  # fmt: skip
    logits = reference_answer(make_problem(case)).logits

    assert 4 < sign * (logits[..., 8:].mean() - logits[..., :4].mean()) < 24


def test_zeros_and_subnormal_numbers_are_drawn() -> None:
    """Rows of 0 and -0.0 are there, and rows below the smallest normal number."""
    zeros = make_problem(parse("mha-N2-L6-S7-H2-D3-cross-float32-zeros-s1")).key
    small = np.abs(make_problem(parse("mha-N2-L6-S7-H2-D3-cross-float32-subnormal-s1")).key)

    assert (zeros == 0).all(axis=-1).any()
    assert np.signbit(zeros[zeros == 0]).any()
    assert not np.signbit(zeros[zeros == 0]).all()
    assert ((small > 0) & (small < np.finfo(np.float32).smallest_normal)).any()


@pytest.mark.parametrize("memory", AXES["memory"])
def test_memory_changes_no_number(memory: str) -> None:
    """However an array lies in memory, it holds the same numbers, and is a copy."""
    array = Stream(1).normal(3, 5, 7)
    copy = copy_in_layout(array, memory)

    np.testing.assert_array_equal(array, copy)
    assert not np.shares_memory(array, copy)
    assert copy.flags.writeable == (memory != "readonly")
    assert copy.flags.c_contiguous == (memory in {"c", "readonly"})


def test_spread_is_the_standard_deviation() -> None:
    """SPREAD is the standard deviation of four 16-bit uniforms summed."""
    squares = sum(i * i for i in range(65536)) / 65536
    mean = sum(range(65536)) / 65536

    assert SPREAD**2 == pytest.approx(4 * (squares - mean**2), rel=1e-12)


@pytest.mark.parametrize("attn", ["causal", "bool2d", "none"])
def test_a_causal_case_has_a_scale_above_0(attn: str) -> None:
    """The flash path of torch multiplies -inf of hidden keys by it: 0 gives NaN, -1 gives +inf."""
    case = parse("qkv-N1-L5-S5-H2-D3-float64-s0").replace(scale="given", attn=attn)
    found = {scale_factor(case.replace(seed=seed)) or 0.0 for seed in range(64)}
    assert (min(found) > 0) == (attn == "causal")
    assert (0 in found) == (attn != "causal")


@pytest.mark.parametrize("projection", ["by_head", "shared"])
def test_heads_that_project_their_own_channels_are_as_large_as_others(projection: str) -> None:
    """Sums over D channels are scaled as those over E: kills scores that are smaller by H."""
    packed = parse("mha-N3-L7-S9-H9-D8-cross-float64-s0")
    sizes = []
    for case in (packed, packed.replace(projection=projection)):
        attention = Attention(make_problem(case))
        attention.answer()
        sizes.append([float(attention.stages[f"{name} heads"].std()) for name in ("query", "key")])
    usual, own = sizes
    assert all(0.5 < size / as_usual < 2 for size, as_usual in zip(own, usual, strict=True))
