"""The weights that flash returns are the plain engine's, in every cut and mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mha_numpy.attention import attend
from mha_numpy.engines.blocks import MOST_KEPT
from mha_numpy.engines.flash import attend_flash
from mha_numpy.engines.threads import set_num_threads
from mha_numpy.engines.tiles import Tiles
from mha_numpy.masks import NO_MASK, Masking

N, H, L, S, D = 3, 4, 29, 37, 7  # as flash_problem draws them
SCALE = 0.37


def weighted_masks() -> dict[str, Masking]:
    """Return one masking of each kind; in some, a row sees no key."""
    rng = np.random.default_rng(7)
    padding = np.arange(S) >= np.array([S, S - 9, 0]).reshape(N, 1, 1, 1)
    full = rng.random((N, H, L, S)) < 0.3
    bias = rng.standard_normal((1, H, L, S)).astype(np.float32)
    large = np.zeros((1, 1, L, 1), np.float32)
    large[0, 0, 5], large[0, 0, 6] = 500, -500
    return {
        "none": NO_MASK,
        "causal": Masking(causal=True),
        "padding": Masking(hidden=(padding,)),
        "boolean-float": Masking((full,), (bias,)),
        "causal-appended": Masking((full,), causal=True, appended=2),
        "large": Masking(bias=(large,)),
    }


def differences(
    result: tuple[Any, Any], arrays: Any, masking: Masking, *, average: bool
) -> tuple[float, float]:
    """Return the largest differences from float64 in output and weights; NaN must be the same."""
    q, k, v = (array.astype(np.float64) for array in arrays)
    with np.errstate(all="ignore"):
        out, weights = attend(q, k, v, masking, SCALE)
    assert weights is not None
    pairs = zip(result, (out, weights.mean(1) if average else weights), strict=True)
    found = []
    for actual, expected in pairs:
        assert expected.shape == actual.shape
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        found.append(float(np.nanmax(np.abs(actual - expected))))
    return found[0], found[1]


def allowed(masking: Masking) -> float:
    """Return what rounding can do to a weight: twice the error of its score, and of S sums."""
    largest = max((np.abs(bias).max() for bias in masking.bias), default=0)
    return float(np.finfo(np.float32).eps * (2 * (D + 3) * (largest + 10) + 2 * S + 10))


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("tiles", [None, Tiles(1, S), Tiles(11, 13)], ids=str)
@pytest.mark.parametrize("name", weighted_masks())
def test_weights_are_the_plain_engines(
    name: str, tiles: Tiles | None, average: bool, flash_problem: Callable[..., Any]
) -> None:
    """Output and weights, or their mean, are the plain engine's, NaN where a row sees no key."""
    q, k, v = flash_problem(3)
    masking = weighted_masks()[name]
    result = attend_flash(
        q, k, v, masking, SCALE, need_weights=True, average_weights=average, tiles=tiles
    )
    of_output, of_weights = differences(result, (q, k, v), masking, average=average)
    assert of_weights <= allowed(masking)
    assert of_output <= allowed(masking) * np.abs(v).max()


def test_the_bound_on_weights_rejects_a_wrong_scale(flash_problem: Callable[..., Any]) -> None:
    """A scale off by a thousandth shows in the weights."""
    q, k, v = flash_problem(3)
    wrong = attend_flash(q, k, v, NO_MASK, SCALE * 1.001, need_weights=True)
    assert differences(wrong, (q, k, v), NO_MASK, average=False)[1] > allowed(NO_MASK)


@pytest.mark.parametrize("average", [True, False])
def test_weights_of_a_block_with_more_scores_than_a_thread_keeps(average: bool) -> None:
    """Weights of 64 rows by 20,000 keys are right: their scores once were no longer held."""
    rows, keys = 64, 20_000
    assert rows * keys > MOST_KEPT
    rng = np.random.default_rng(11)
    shapes = (1, 2, rows, 3), (1, 2, keys, 3), (1, 2, keys, 3)
    q, k, v = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    result = attend_flash(q, k, v, NO_MASK, SCALE, need_weights=True, average_weights=average)
    of_output, of_weights = differences(result, (q, k, v), NO_MASK, average=average)
    assert of_weights <= allowed(NO_MASK)
    assert of_output <= allowed(NO_MASK) * np.abs(v).max()


@pytest.mark.parametrize("average", [True, False])
def test_weights_do_not_depend_on_threads(average: bool, flash_problem: Callable[..., Any]) -> None:
    """Any number of threads gives the same bits."""
    q, k, v = flash_problem(5)
    options: dict[str, Any] = {"need_weights": True, "average_weights": average}
    found = []
    for count in (1, 4):
        set_num_threads(count)
        found.append(
            attend_flash(q, k, v, Masking(causal=True), SCALE, tiles=Tiles(5, S), **options)
        )
    one, four = found
    for first, second in zip(one, four, strict=True):
        assert first is not None
        assert second is not None
        np.testing.assert_array_equal(first, second)
