"""Flash computes the plain engine's function, weights too, in every cut, mask, layout and range."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mha_numpy.attention import attend
from mha_numpy.engines import flash
from mha_numpy.engines.blocks import Block
from mha_numpy.engines.flash import attend_flash
from mha_numpy.engines.threads import set_num_threads
from mha_numpy.engines.tiles import Tiles, choose_tiles, cut_tasks, spans
from mha_numpy.masks import NO_MASK, Masking, causal_hidden
from mha_numpy.softmax import row_sums

N, KV_HEADS, GROUP, L, S, D, DV = 3, 2, 2, 29, 37, 7, 5
H = KV_HEADS * GROUP
SCALE = 0.37
CUTS = {
    "chosen": None,
    "one-cell": Tiles(1, 1),
    "odd": Tiles(11, 13),
    "all-queries": Tiles(L, 5),
    "all-keys": Tiles(4, S),
}


def flash_heads(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    masking: Masking = NO_MASK,
    scale: float = 1.0,
    **options: Any,
) -> NDArray[Any]:
    """Return the heads alone."""
    return attend_flash(q, k, v, masking, scale, **options)[0]


def problem(
    seed: int, dtype: Any = np.float32, sizes: tuple[int, ...] = (N, KV_HEADS, GROUP, L, S, D, DV)
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return random q (N, H, L, D), k (N, Hkv, S, D), v (N, Hkv, S, Dv)."""
    n, kv_heads, group, queries, keys, width, value_width = sizes
    rng = np.random.default_rng(seed)
    shapes = [
        (n, kv_heads * group, queries, width),
        (n, kv_heads, keys, width),
        (n, kv_heads, keys, value_width),
    ]
    q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    return q, k, v


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
def test_equals_the_core_within_rounding(name: str, tiles: Tiles | None, dtype: Any) -> None:
    """Every mask in every cut gives the core's result, head by head, up to a rounding bound."""
    q, k, v = problem(11, dtype)
    masking = masks()[name]
    actual = flash_heads(q, k, v, masking, SCALE, tiles=tiles)
    assert actual.dtype == dtype
    share = worst_share(actual, q, k, v, masking, SCALE)
    assert share <= 1


@pytest.mark.parametrize(
    "broken",
    [
        lambda q, k, v, m: flash_heads(q, k, v, m, SCALE * 1.001),
        lambda q, k, v, m: flash_heads(q, k, v, replace(m, appended=0), SCALE),
        lambda q, k, v, m: flash_heads(q, k[:, ::-1], v[:, ::-1], m, SCALE),
        lambda q, k, v, m: flash_heads(q, k.astype(np.float16).astype(k.dtype), v, m, SCALE),
    ],
    ids=["scale", "appended", "heads", "float16"],
)
def test_bound_rejects_a_wrong_result(broken: Any) -> None:
    """A scale off by a thousandth, a forgotten rule, swapped heads and lost digits all show."""
    q, k, v = problem(11)
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
    level: float, dtype: Any, needs_maximum: bool, blocks_maxima: list[bool]
) -> None:
    """Rows at any level come out right, and the maximum is taken only where exp would not do."""
    q, k, v = problem(23, dtype)
    level_of_rows = np.full((1, 1, L, 1), level, dtype)
    masking = Masking(bias=(level_of_rows,))
    actual = flash_heads(q, k, v, masking, SCALE, tiles=Tiles(8, 16))
    assert needs_maximum == bool(blocks_maxima)
    assert worst_share(actual, q, k, v, masking, SCALE) <= 1


def test_only_the_loud_block_takes_the_maximum(blocks_maxima: list[bool]) -> None:
    """One row of large logits costs its own block, not the others, and is exact itself."""
    q, k, v = problem(29)
    q[1, 2, 13] *= 200
    actual = flash_heads(q, k, v, NO_MASK, SCALE, tiles=Tiles(8, 16))
    assert len(blocks_maxima) == 1
    assert worst_share(actual, q, k, v, NO_MASK, SCALE) <= 1


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_values_may_be_of_any_size(size: float) -> None:
    """exp(logits) times a huge or tiny value neither overflows nor vanishes."""
    q, k, v = problem(31)
    v *= np.float32(size)
    masking = Masking(bias=(np.full((1, 1, L, 1), 45, np.float32),))
    actual = flash_heads(q, k, v, masking, SCALE)
    assert worst_share(actual, q, k, v, masking, SCALE) <= 1


@pytest.mark.parametrize("tiles", CUTS.values(), ids=CUTS)
def test_rows_without_a_key_are_zero(tiles: Tiles | None) -> None:
    """A row that sees no key is exactly 0, the others are untouched by it."""
    q, k, v = problem(37)
    hidden = np.zeros((N, 1, L, S), bool)
    hidden[0, :, 5] = hidden[2] = True
    actual = flash_heads(q, k, v, Masking(hidden=(hidden,)), SCALE, tiles=tiles)
    assert not actual[0, :, 5].any()
    assert not actual[2].any()
    assert worst_share(actual, q, k, v, Masking(hidden=(hidden,)), SCALE) <= 1


def test_no_keys_and_no_queries() -> None:
    """Without keys the result is 0; without queries, samples or values it is empty."""
    for sizes in [(N, 2, 2, L, 0, D, DV), (N, 2, 2, 0, S, D, DV), (0, 2, 2, L, S, D, DV)]:
        q, k, v = problem(41, sizes=sizes)
        actual = flash_heads(q, k, v)
        assert (*q.shape[:3], DV) == actual.shape
        assert not actual.any()


def test_nan_in_a_visible_key_reaches_its_rows_alone() -> None:
    """NaN goes where the core lets it go: to all rows that see the key, to no other."""
    q, k, v = problem(43)
    k[1, 0, 20] = np.nan
    actual = flash_heads(q, k, v, Masking(causal=True), SCALE, tiles=Tiles(4, 4))
    poisoned = np.isnan(actual).any(axis=3)
    assert poisoned[1, :GROUP, 20:].all()
    assert not poisoned[1, GROUP:].any()
    assert not poisoned[[0, 2]].any()
    assert not poisoned[1, :, :20].any()


def test_memory_orders_and_read_only_inputs() -> None:
    """Fortran order, strides of any sign and read-only arrays give the same; nothing is written.

    NumPy multiplies some of them by loops of its own, in another order.
    """
    q, k, v = problem(47)
    expected = flash_heads(q, k, v, NO_MASK, SCALE)
    views = [np.asfortranarray(array) for array in (q, k, v)]
    flipped = [
        np.ascontiguousarray(array[:, :, ::-1, ::-1])[:, :, ::-1, ::-1] for array in (q, k, v)
    ]
    for arrays in (views, flipped):
        before = [array.copy() for array in arrays]
        for array in arrays:
            array.flags.writeable = False
        actual = flash_heads(arrays[0], arrays[1], arrays[2], NO_MASK, SCALE)
        assert np.abs(actual - expected).max() <= 64 * np.finfo(actual.dtype).eps
        for array, copy in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, copy)


def test_result_lies_as_merged_heads() -> None:
    """Merging the heads of the result is a view."""
    heads_out = flash_heads(*problem(53))
    assert heads_out.transpose(0, 2, 1, 3).flags.c_contiguous


def peak_memory(length: int) -> int:
    """Return the most memory that one call holds, in bytes."""
    q, k, v = problem(59, sizes=(1, 2, 1, length, length, 16, 16))
    tracemalloc.start()
    set_num_threads(1)
    flash_heads(q, k, v, Masking(causal=True), SCALE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_grows_linearly() -> None:
    """Twice the length takes less than 2.5 times the memory, far below that of the logits."""
    peak_memory(512)  # the scratch array and the cached rows of ones, which stay
    short, long = peak_memory(1024), peak_memory(2048)
    assert long < 2.5 * short
    assert long < 2048 * 2048 * 4 / 4


@pytest.mark.parametrize("seed", [61, 67])
def test_no_less_accurate_than_the_fused_kernel_of_torch(seed: int) -> None:
    """Over many keys, no head's root mean square error is above 1.25 times torch's."""
    q, k, v = problem(seed, sizes=(1, 4, 1, 101, 4099, 64, 64))
    scale = 64**-0.5
    exact = gold(q, k, v, NO_MASK, scale)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        fused = torch.nn.functional.scaled_dot_product_attention(
            torch.from_numpy(q), torch.from_numpy(k), torch.from_numpy(v), scale=scale
        ).numpy()
    actual = flash_heads(q, k, v, NO_MASK, scale)
    error, error_of_torch = (
        np.sqrt(np.mean((one - exact) ** 2, axis=(0, 2, 3))) for one in (actual, fused)
    )
    assert (error <= 1.25 * error_of_torch).all()


@pytest.mark.parametrize("height", [1, 7, L])
@pytest.mark.parametrize(("n", "key_heads"), [(1, 1), (N, KV_HEADS), (5, 4)])
def test_tasks_cover_every_query_once(n: int, key_heads: int, height: int) -> None:
    """The cut is a partition, whatever the tile, and few heads are cut by their queries."""
    times = np.zeros((n, key_heads, L), int)
    tasks = cut_tasks(n, key_heads, L, height)
    for sample, heads, run in tasks:
        times[sample, list(heads), run] += 1
    for sample, heads, run in cut_tasks(n, key_heads, L, height, whole_heads=False):
        times[sample, list(heads), run] += 1
    assert (times == 2).all()
    assert len(tasks) >= min(n * key_heads * len(spans(0, L, height)), 5)


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("length", [1, 29, 512, 513, 4099])
def test_a_tile_fits_the_cache(length: int, itemsize: int) -> None:
    """No tile takes more than an eighth over half a megabyte."""
    tiles = choose_tiles(length, length, itemsize, 8)
    assert tiles.queries * tiles.keys * itemsize <= 512 * 1024 * 9 / 8


def test_few_heads_get_blocks_of_fewer_queries() -> None:
    """One head of 600 queries is several tasks, also where the rows of the weights are whole."""
    for whole_rows in (False, True):
        many = choose_tiles(600, 100, 4, 8, whole_rows=whole_rows)
        few = choose_tiles(600, 100, 4, 1, whole_rows=whole_rows)
        assert (600, 80) == (many.queries, few.queries)


def test_causal_rule_halves_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles that lie wholly in the future are not computed."""
    cells: list[int] = []
    real = row_sums

    def count(tile: NDArray[Any]) -> NDArray[Any]:
        cells.append(tile.size)
        return real(tile)

    monkeypatch.setattr(flash, "row_sums", count)
    q, k, v = problem(71, sizes=(1, 1, 1, 64, 64, 8, 8))
    set_num_threads(1)
    flash_heads(q, k, v, Masking(causal=True), SCALE, tiles=Tiles(8, 8))
    visible = (~causal_hidden(64, 64)).sum()
    assert visible <= sum(cells) <= visible + 64 * 8


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


def differences(result: tuple[Any, Any], masking: Masking, *, average: bool) -> tuple[float, float]:
    """Return the largest differences from float64 in output and weights; NaN must be the same."""
    q, k, v = (array.astype(np.float64) for array in problem(3))
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
def test_weights_are_the_plain_engines(name: str, tiles: Tiles | None, average: bool) -> None:
    """Output and weights, or their mean, are the plain engine's, NaN where a row sees no key."""
    q, k, v = problem(3)
    masking = weighted_masks()[name]
    result = attend_flash(
        q, k, v, masking, SCALE, need_weights=True, average_weights=average, tiles=tiles
    )
    of_output, of_weights = differences(result, masking, average=average)
    assert of_weights <= allowed(masking)
    assert of_output <= allowed(masking) * np.abs(v).max()


def test_the_bound_on_weights_rejects_a_wrong_scale() -> None:
    """A scale off by a thousandth shows in the weights."""
    q, k, v = problem(3)
    wrong = attend_flash(q, k, v, NO_MASK, SCALE * 1.001, need_weights=True)
    assert differences(wrong, NO_MASK, average=False)[1] > allowed(NO_MASK)


@pytest.mark.parametrize("average", [True, False])
def test_weights_do_not_depend_on_threads(average: bool) -> None:
    """Any number of threads gives the same bits."""
    q, k, v = problem(5)
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
