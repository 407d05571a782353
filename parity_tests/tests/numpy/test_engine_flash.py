"""Flash computes the plain engine's heads in every cut, mask, memory order and range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mha_numpy.attention import attend
from mha_numpy.engines.blocks import MOST_KEPT, Block, scratch
from mha_numpy.engines.flash import attend_flash
from mha_numpy.engines.tiles import Tiles
from mha_numpy.masks import NO_MASK, Masking

N, H, GROUP, L, S, D, DV = 3, 4, 2, 29, 37, 7, 5  # as flash_problem draws them
SCALE = 0.37
CUTS = {
    "chosen": None,
    "one-cell": Tiles(1, 1),
    "odd": Tiles(11, 13),
    "all-queries": Tiles(L, 5),
    "all-keys": Tiles(4, S),
}


def masks() -> dict[str, Masking]:
    """Return one masking of each kind and their mixtures."""
    rng = np.random.default_rng(7)
    ends = np.array([S, S - 9, 4]).reshape(N, 1, 1, 1)
    padding = np.arange(S) >= ends
    left = np.arange(S) < np.array([0, 3, S]).reshape(N, 1, 1, 1)
    scattered = rng.random((N, 1, 1, S)) < 0.4
    full = rng.random((N, H, L, S)) < 0.3
    shared = rng.random((1, 1, L, S)) < 0.3
    bias = rng.standard_normal((1, H, L, S)).astype(np.float32)
    row_bias = rng.standard_normal((N, 1, 1, S)).astype(np.float32)
    cut_off = np.where(shared, -np.inf, bias).astype(np.float32)
    return {
        "none": NO_MASK,
        "causal": Masking(causal=True),
        "causal-appended": Masking(causal=True, appended=2),
        "padding": Masking(hidden=(padding,)),
        "left-padding": Masking(hidden=(left,)),
        "scattered-padding": Masking(hidden=(scattered,)),
        "causal-padding-appended": Masking(hidden=(padding,), causal=True, appended=1),
        "boolean": Masking(hidden=(full, shared)),
        "float": Masking(bias=(bias, row_bias)),
        "float-infinite": Masking(bias=(cut_off,)),
        "all": Masking((full, scattered), (bias,), causal=True, appended=3),
    }


def gold(
    q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], masking: Masking, scale: float
) -> NDArray[Any]:
    """Return the result of the plain engine, in float64."""
    q, k, v = q.astype(np.float64), k.astype(np.float64), v.astype(np.float64)
    with np.errstate(all="ignore"):
        return attend(q, k, v, masking, scale, empty_rows_are_zero=True)[0]


def worst_share(
    actual: NDArray[Any],
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    masking: Masking,
    scale: float,
) -> float:
    """Return the largest error of a head in units of what rounding can do to first order.

    A logit of absolute value at most X is off by (D + 3) eps X, a weight then by twice that and by
    the S + 5 roundings of exp, sum and division, the mixture by S more, times the largest value.
    """
    eps = np.finfo(actual.dtype).eps
    group = q.shape[1] // k.shape[1]
    grown = np.repeat(np.abs(k), group, axis=1).astype(np.float64)
    largest = scale * (np.abs(q) @ grown.swapaxes(2, 3)).max(axis=(2, 3))
    for bias in masking.bias:
        largest = largest + np.abs(bias[np.isfinite(bias)]).max()
    values = np.repeat(np.abs(v).max(axis=(2, 3)), group, axis=1)
    allowed = eps * values * (2 * (q.shape[3] + 3) * largest + 2 * k.shape[2] + 10)
    errors = np.abs(actual - gold(q, k, v, masking, scale)).max(axis=(2, 3))
    return float((errors / allowed).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tiles", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("name", masks())
def test_equals_the_core_within_rounding(
    name: str, tiles: Tiles | None, dtype: Any, flash_problem: Callable[..., Any]
) -> None:
    """Every mask in every cut gives the core's result, head by head, up to a rounding bound."""
    q, k, v = flash_problem(11, dtype)
    masking = masks()[name]
    actual = attend_flash(q, k, v, masking, SCALE, tiles=tiles)[0]
    assert actual.dtype == dtype
    share = worst_share(actual, q, k, v, masking, SCALE)
    assert share <= 1


@pytest.mark.parametrize(
    "broken",
    [
        lambda q, k, v, m: attend_flash(q, k, v, m, SCALE * 1.001)[0],
        lambda q, k, v, m: attend_flash(q, k, v, replace(m, appended=0), SCALE)[0],
        lambda q, k, v, m: attend_flash(q, k[:, ::-1], v[:, ::-1], m, SCALE)[0],
        lambda q, k, v, m: attend_flash(q, k.astype(np.float16).astype(k.dtype), v, m, SCALE)[0],
    ],
    ids=["scale", "appended", "heads", "float16"],
)
def test_bound_rejects_a_wrong_result(broken: Any, flash_problem: Callable[..., Any]) -> None:
    """A scale off by a thousandth, a forgotten rule, swapped heads and lost digits all show."""
    q, k, v = flash_problem(11)
    masking = Masking(causal=True, appended=2)
    assert worst_share(broken(q, k, v, masking), q, k, v, masking, SCALE) > 1


@pytest.fixture
def blocks_maxima(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note each block that is computed with the running maximum."""
    seen: list[bool] = []
    real = Block.maxima

    def spy(*args: Any) -> Any:
        seen.append(True)
        return real(*args)

    monkeypatch.setattr(Block, "maxima", spy)
    return seen


@pytest.mark.parametrize(
    ("level", "dtype", "needs_maximum"),
    [
        (0, np.float32, False),
        (30, np.float32, False),
        (-10, np.float32, False),
        (88, np.float32, True),
        (-30, np.float32, True),
        (-88, np.float32, True),
        (-1000, np.float32, True),
        (88, np.float64, False),
        (-88, np.float64, False),
        (709, np.float64, True),
        (-709, np.float64, True),
    ],
)
def test_range_of_logits_decides_on_the_maximum(
    level: float,
    dtype: Any,
    needs_maximum: bool,
    blocks_maxima: list[bool],
    flash_problem: Callable[..., Any],
) -> None:
    """Rows at any level come out right, and the maximum is taken only where exp would not do."""
    q, k, v = flash_problem(23, dtype)
    level_of_rows = np.full((1, 1, L, 1), level, dtype)
    masking = Masking(bias=(level_of_rows,))
    actual = attend_flash(q, k, v, masking, SCALE, tiles=Tiles(8, 16))[0]
    assert needs_maximum == bool(blocks_maxima)
    assert worst_share(actual, q, k, v, masking, SCALE) <= 1


def test_only_the_loud_block_takes_the_maximum(
    blocks_maxima: list[bool], flash_problem: Callable[..., Any]
) -> None:
    """One row of large logits costs its own block, not the others, and is exact itself."""
    q, k, v = flash_problem(29)
    q[1, 2, 13] *= 200
    actual = attend_flash(q, k, v, NO_MASK, SCALE, tiles=Tiles(8, 16))[0]
    assert 1 == len(blocks_maxima)
    assert worst_share(actual, q, k, v, NO_MASK, SCALE) <= 1


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_values_may_be_of_any_size(size: float, flash_problem: Callable[..., Any]) -> None:
    """exp(logits) times a huge or tiny value neither overflows nor vanishes."""
    q, k, v = flash_problem(31)
    v *= np.float32(size)
    masking = Masking(bias=(np.full((1, 1, L, 1), 45, np.float32),))
    actual = attend_flash(q, k, v, masking, SCALE)[0]
    assert worst_share(actual, q, k, v, masking, SCALE) <= 1


@pytest.mark.parametrize("tiles", CUTS.values(), ids=CUTS)
def test_rows_without_a_key_are_zero(
    tiles: Tiles | None, flash_problem: Callable[..., Any]
) -> None:
    """A row that sees no key is exactly 0, the others are untouched by it."""
    q, k, v = flash_problem(37)
    hidden = np.zeros((N, 1, L, S), bool)
    hidden[0, :, 5] = hidden[2] = True
    actual = attend_flash(q, k, v, Masking(hidden=(hidden,)), SCALE, tiles=tiles)[0]
    assert not actual[0, :, 5].any()
    assert not actual[2].any()
    assert worst_share(actual, q, k, v, Masking(hidden=(hidden,)), SCALE) <= 1


def test_no_keys_and_no_queries(flash_problem: Callable[..., Any]) -> None:
    """Without keys the result is 0; without queries, samples or values it is empty."""
    for sizes in [(N, 2, 2, L, 0, D, DV), (N, 2, 2, 0, S, D, DV), (0, 2, 2, L, S, D, DV)]:
        q, k, v = flash_problem(41, sizes=sizes)
        actual = attend_flash(q, k, v)[0]
        assert (*q.shape[:3], DV) == actual.shape
        assert not actual.any()


def test_nan_in_a_visible_key_reaches_its_rows_alone(flash_problem: Callable[..., Any]) -> None:
    """NaN goes where the core lets it go: to all rows that see the key, to no other."""
    q, k, v = flash_problem(43)
    k[1, 0, 20] = np.nan
    actual = attend_flash(q, k, v, Masking(causal=True), SCALE, tiles=Tiles(4, 4))[0]
    poisoned = np.logical_or.reduce(np.isnan(actual), axis=3)
    assert poisoned[1, :GROUP, 20:].all()
    assert not poisoned[1, GROUP:].any()
    assert not poisoned[[0, 2]].any()
    assert not poisoned[1, :, :20].any()


def test_memory_orders_and_read_only_inputs(flash_problem: Callable[..., Any]) -> None:
    """Fortran order, strides of any sign and read-only arrays give the same; nothing is written.

    NumPy multiplies some of them by loops of its own, in another order.
    """
    q, k, v = flash_problem(47)
    expected = attend_flash(q, k, v, NO_MASK, SCALE)[0]
    views = [np.asfortranarray(array) for array in (q, k, v)]
    flipped = [
        np.ascontiguousarray(array[:, :, ::-1, ::-1])[:, :, ::-1, ::-1] for array in (q, k, v)
    ]
    for arrays in (views, flipped):
        before = [array.copy() for array in arrays]
        for array in arrays:
            array.flags.writeable = False
        actual = attend_flash(arrays[0], arrays[1], arrays[2], NO_MASK, SCALE)[0]
        assert np.abs(actual - expected).max() <= 64 * np.finfo(actual.dtype).eps
        for array, copy in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, copy)


def test_result_lies_as_merged_heads(flash_problem: Callable[..., Any]) -> None:
    """Merging the heads of the result is a view."""
    heads_out = attend_flash(*flash_problem(53))[0]
    assert heads_out.transpose(0, 2, 1, 3).flags.c_contiguous


def test_keys_of_a_very_long_sequence_leave_no_memory_behind() -> None:
    """A thread keeps tiles; copies of all keys are freed with the task."""
    kept = scratch((MOST_KEPT,), np.float32, "a test's")
    assert np.shares_memory(kept, scratch((MOST_KEPT // 2,), np.float32, "a test's"))
    long = scratch((MOST_KEPT + 1,), np.float32, "a test's")
    assert not np.shares_memory(long, scratch((MOST_KEPT + 1,), np.float32, "a test's"))
    assert np.shares_memory(kept, scratch((MOST_KEPT,), np.float32, "a test's"))
