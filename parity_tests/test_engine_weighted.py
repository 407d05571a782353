"""Attention by rows returns the core's result and the core's weights, or their mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mha_numpy import MultiheadAttention
from mha_numpy._masking import NO_MASK, Masking
from mha_numpy._materialised import attend
from mha_numpy._weighted import attend_weighted

N, KV_HEADS, GROUP, L, S, D, DV = 3, 2, 2, 29, 37, 7, 5
H = KV_HEADS * GROUP
SCALE = 0.37
EPS = np.finfo(np.float32).eps


def problem(seed: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return random q (N, H, L, D), k (N, Hkv, S, D), v (N, Hkv, S, Dv) in float32."""
    rng = np.random.default_rng(seed)
    shapes = (N, H, L, D), (N, KV_HEADS, S, D), (N, KV_HEADS, S, DV)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return q, k, v


def masks() -> dict[str, Masking]:
    """Return one masking of each kind; in some, a row sees no key."""
    rng = np.random.default_rng(7)
    padding = np.arange(S) >= np.array([S, S - 9, 0]).reshape(N, 1, 1, 1)
    full = rng.random((N, H, L, S)) < 0.3
    bias = rng.standard_normal((1, H, L, S)).astype(np.float32)
    loud = np.zeros((1, 1, L, 1), np.float32)
    loud[0, 0, 5], loud[0, 0, 6] = 500, -500
    return {
        "none": NO_MASK,
        "causal": Masking(causal=True),
        "padding": Masking(hidden=(padding,)),
        "boolean-float": Masking((full,), (bias,)),
        "causal-appended": Masking((full,), causal=True, appended=2),
        "loud": Masking(bias=(loud,)),
    }


def differences(
    result: tuple[NDArray[Any], NDArray[Any]], masking: Masking, *, average: bool
) -> tuple[float, float]:
    """Return the largest differences from float64 in output and weights; NaN must be the same."""
    q, k, v = (array.astype(np.float64) for array in problem(3))
    with np.errstate(invalid="ignore"):
        out, weights = attend(q, k, v, masking, SCALE)
    pairs = zip(result, (out, weights.mean(1) if average else weights), strict=True)
    found = []
    for actual, expected in pairs:
        assert expected.shape == actual.shape
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        found.append(float(np.nanmax(np.abs(actual - expected))))
    return found[0], found[1]


def allowed(masking: Masking) -> float:
    """Return what rounding can do to a weight: twice the error of its logit, and of S sums."""
    loudest = max((np.abs(bias).max() for bias in masking.bias), default=0)
    return float(EPS * (2 * (D + 3) * (loudest + 10) + 2 * S + 10))


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("rows", [None, 1, 11])
@pytest.mark.parametrize("name", masks())
def test_equals_the_core_within_rounding(name: str, rows: int | None, average: bool) -> None:
    """Output and weights are the core's, NaN where a row sees no key, in blocks of any height."""
    q, k, v = problem(3)
    masking = masks()[name]
    result = attend_weighted(q, k, v, masking, SCALE, average=average, rows=rows)
    of_output, of_weights = differences(result, masking, average=average)
    assert of_weights <= allowed(masking)
    assert of_output <= allowed(masking) * np.abs(v).max()


def test_bound_rejects_a_wrong_scale() -> None:
    """A scale off by a thousandth shows in the weights."""
    q, k, v = problem(3)
    wrong = attend_weighted(q, k, v, NO_MASK, SCALE * 1.001, average=False)
    assert differences(wrong, NO_MASK, average=False)[1] > allowed(NO_MASK)


def test_does_not_depend_on_threads() -> None:
    """Any number of threads gives the same bits."""
    q, k, v = problem(5)
    one, four = (
        attend_weighted(q, k, v, Masking(causal=True), SCALE, average=True, rows=5, threads=count)
        for count in (1, 4)
    )
    np.testing.assert_array_equal(four[0], one[0])
    np.testing.assert_array_equal(four[1], one[1])


@pytest.mark.parametrize("average", [True, False])
def test_a_large_layer_returns_the_weights_of_the_core(average: bool) -> None:
    """A layer large enough to choose this way answers as with the core, up to rounding."""
    rng = np.random.default_rng(11)
    x = rng.standard_normal((2, 211, 24)).astype(np.float32)
    answers = []
    for engine in ("auto", "materialised"):
        layer = MultiheadAttention(
            24, 3, batch_first=True, rng=np.random.default_rng(13), engine=engine
        )
        answers.append(layer(x, x, x, average_attn_weights=average))
    (output, weights), (expected_output, expected_weights) = answers
    assert weights is not None
    assert expected_weights is not None
    assert np.abs(weights - expected_weights).max() <= 50 * EPS * expected_weights.max()
    assert np.abs(output - expected_output).max() <= 50 * EPS * np.abs(expected_output).max()
