"""Flash's tiles: what they cover, hold and cost, in memory, work and accuracy."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mha_numpy.attention import attend
from mha_numpy.engines import flash
from mha_numpy.engines import tiles as engine_tiles
from mha_numpy.engines.flash import attend_flash
from mha_numpy.engines.threads import set_num_threads
from mha_numpy.engines.tiles import Tiles, choose_tiles, cut_tasks, slices, tile_bytes
from mha_numpy.masks import NO_MASK, Masking, causal_hidden
from mha_numpy.softmax import row_sums

N, KV_HEADS, L = 3, 2, 29
SCALE = 0.37


def peak_memory(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any]) -> int:
    """Return the most memory that one call holds, in bytes."""
    tracemalloc.start()
    set_num_threads(1)
    attend_flash(q, k, v, Masking(causal=True), SCALE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_grows_linearly(flash_problem: Callable[..., Any]) -> None:
    """Twice the length takes less than 2.5 times the memory, far below that of the logits."""
    # The first call makes the scratch array and the cached rows of ones, which stay.
    _, short, long = (
        peak_memory(*flash_problem(59, sizes=(1, 2, 1, length, length, 16, 16)))
        for length in (2048, 2048, 4096)
    )
    assert long < 2.5 * short
    assert long < 4096 * 4096 * 4 / 4


@pytest.mark.parametrize("seed", [61, 67])
def test_no_less_accurate_than_the_fused_kernel_of_torch(
    seed: int, flash_problem: Callable[..., Any]
) -> None:
    """Over many keys, no head's root mean square error is above 1.25 times torch's."""
    q, k, v = flash_problem(seed, sizes=(1, 4, 1, 101, 4099, 64, 64))
    scale = 64**-0.5
    wide = [array.astype(np.float64) for array in (q, k, v)]
    exact, _ = attend(wide[0], wide[1], wide[2], NO_MASK, scale)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        fused = torch.nn.functional.scaled_dot_product_attention(
            torch.from_numpy(q), torch.from_numpy(k), torch.from_numpy(v), scale=scale
        ).numpy()
    actual = attend_flash(q, k, v, NO_MASK, scale)[0]
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
    assert len(tasks) >= min(n * key_heads * len(slices(0, L, height)), 5)


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("length", [1, 29, 512, 513, 4099])
def test_a_tile_fits_the_cache(length: int, itemsize: int) -> None:
    """No tile takes more than an eighth over what the cache leaves it."""
    tiles = choose_tiles(length, length, itemsize, 8)
    assert tiles.queries * tiles.keys * itemsize <= tile_bytes() * 9 / 8


@pytest.mark.parametrize(
    ("cache", "kilobytes"),
    [("256K", 512), ("1024K\n", 512), ("1536K", 768), ("2048K\n", 1024), ("64M", 512), (None, 512)],
)
def test_a_tile_takes_half_of_the_cache(
    cache: str | None, kilobytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between half a megabyte and one; half a megabyte where the size cannot be read."""
    file = tmp_path / "size"
    if cache is not None:
        file.write_text(cache)
    monkeypatch.setattr(engine_tiles, "_CACHE", file)
    assert kilobytes * 1024 == tile_bytes.__wrapped__()


def test_few_heads_get_blocks_of_fewer_queries() -> None:
    """One head of 600 queries is several tasks, also where the weights are held."""
    for held in (False, True):
        many = choose_tiles(600, 100, 4, 8, held=held)
        few = choose_tiles(600, 100, 4, 1, held=held)
        assert (600, 80) == (many.queries, few.queries)


def test_held_tiles_of_few_queries_have_more_keys() -> None:
    """One head of 1024 queries has blocks of 128, whose tiles are as large as those of 512."""
    held, passing = (choose_tiles(1024, 4096, 4, 1, held=held) for held in (True, False))
    assert 128 == held.queries == passing.queries
    assert passing.keys < held.keys == tile_bytes() // (128 * 4)


def test_causal_rule_halves_the_work(
    monkeypatch: pytest.MonkeyPatch, flash_problem: Callable[..., Any]
) -> None:
    """Tiles that lie wholly in the future are not computed."""
    cells: list[int] = []
    real = row_sums

    def count(tile: NDArray[Any]) -> NDArray[Any]:
        cells.append(tile.size)
        return real(tile)

    monkeypatch.setattr(flash, "row_sums", count)
    q, k, v = flash_problem(71, sizes=(1, 1, 1, 64, 64, 8, 8))
    set_num_threads(1)
    attend_flash(q, k, v, Masking(causal=True), SCALE, tiles=Tiles(8, 8))
    visible = (~causal_hidden(64, 64)).sum()
    assert visible <= sum(cells) <= visible + 64 * 8


@pytest.mark.parametrize(("samples", "heads"), [(1, 1), (1, 2), (2, 1), (2, 4)])
def test_few_heads_are_cut_into_eight_tasks(samples: int, heads: int) -> None:
    """One head gives eight runs of its queries, two heads four each, and eight heads one each."""
    assert 8 == len(cut_tasks(samples, heads, 512, 32))
