"""How the scores of a problem are cut into tiles that fit the cache.

A task is what one thread does at a time: a run of queries of some heads of one sample. It goes
through its queries block by block, and through the keys of a block tile by tile. The cut depends
on sizes and the processor's cache, never on the number of threads, so that no result does either.
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from mha_numpy.masks import causal_hidden

if TYPE_CHECKING:
    from mha_numpy.dtypes import Array

LEAST_TILE_BYTES, MOST_TILE_BYTES = 512 * 1024, 1024 * 1024
TILE_KEYS = 512
"""Measured, two threads, AVX-512, a second-level cache of two megabytes: 256 x 512 float32 takes
1.05 to 1.09 of the time of 512 x 512, 512 x 256 takes 1.02 to 1.06, 1024 x 512 from 0.98 to 1.03.
With smaller caches 256 x 512 is the best, by 3 to 15 %."""
HELD_BYTES = 8 * 1024 * 1024
"""Where weights are needed the scores of a block are held for all keys, in this much memory: 512
queries by 4096 keys. 256 queries take 1.09 to 1.3 of the time, though they fit a cache sooner."""
LEAST_TASKS = 8
"""Problems of few heads are cut into that many tasks at least, for the threads to share."""
LEAST_ROWS = 64
"""With fewer rows a product spends more on packing the keys than on multiplying."""
_CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")


class Tiles(NamedTuple):
    """The queries of a block, and the keys of a tile at most."""

    queries: int
    keys: int


Task: TypeAlias = tuple[int, range, slice]
"""A sample, some of its key heads, and a run of its queries."""


@cache
def tile_bytes() -> int:
    """Return the memory of a tile of scores: half of the second-level cache, within limits."""
    try:
        kilobytes = int(_CACHE.read_text().strip().removesuffix("K"))
    except (OSError, ValueError):  # no Linux
        kilobytes = 0
    return min(max(kilobytes * 512, LEAST_TILE_BYTES), MOST_TILE_BYTES)


def choose_tiles(
    queries: int,
    keys: int,
    itemsize: int,
    heads: int,
    *,
    most_keys: int = TILE_KEYS,
    most_bytes: int | None = None,
    held: bool = False,
    least_rows: int = LEAST_ROWS,
) -> Tiles:
    """Return tiles of about `most_keys` keys and as many queries as `most_bytes` hold.

    The latter are `tile_bytes` where they are None. Where the scores of all keys are `held`,
    HELD_BYTES have room for a block, and a tile of few queries has more keys. Few heads, counted
    over all samples, get blocks of fewer queries, so that there are LEAST_TASKS.
    """
    width = even_length(keys, most_keys)
    rows = (most_bytes or tile_bytes()) // (width * itemsize)
    if held:
        rows = min(rows, HELD_BYTES // (keys * itemsize))
    rows = min(rows, -(-queries * heads // LEAST_TASKS))
    rows = even_length(queries, max(rows, least_rows))
    if held:
        width = even_length(keys, max(width, tile_bytes() // (rows * itemsize)))
    return Tiles(rows, width)


def cut_tasks(
    n: int, key_heads: int, queries: int, height: int, *, whole_heads: bool = True
) -> list[Task]:
    """Return tasks of one key head each, of parts of its queries where heads are few.

    Without `whole_heads` a task has all heads of its queries.
    """
    step = 1 if whole_heads else key_heads
    parts = -(-LEAST_TASKS * step // max(n * key_heads, 1))
    blocks = -(-queries // height)
    run = height * max(blocks // parts, 1)
    heads = [range(first, first + step) for first in range(0, key_heads, step)]
    return list(product(range(n), heads, slices(0, queries, run)))


def even_length(length: int, most: int) -> int:
    """Return the part size, at most `most` or up to 15 more, that leaves no small remainder."""
    parts = max(-(-length // most), 1)
    share = -(-length // parts)
    return max(min(length, -(-share // 16) * 16), 1)


def slices(start: int, stop: int, step: int) -> list[slice]:
    """Return slices of `step`, the last perhaps shorter, that cover start ... stop."""
    return [slice(i, min(i + step, stop)) for i in range(start, stop, step)]


def of_head(masks: tuple[Array, ...], sample: int, head: int) -> tuple[Array, ...]:
    """Return the views of one head of masks that broadcast to (N, H, L, S)."""
    return tuple(mask[sample * (len(mask) > 1), head * (mask.shape[1] > 1)] for mask in masks)


def mask_part(mask: Array, queries: slice, keys: slice) -> Array:
    """Return the tile's part of a mask, axes of size 1 left alone."""
    rows, columns = mask.shape
    return mask[queries if rows > 1 else slice(None), keys if columns > 1 else slice(None)]


def tiles_between(bounds: list[int], most: int) -> list[slice]:
    """Return tiles of even length that cover first ... last bound and start at each of them."""
    parts = ((start, stop, even_length(stop - start, most)) for start, stop in pairwise(bounds))
    return [tile for each in parts for tile in slices(*each)]


@lru_cache(maxsize=8)
def future_mask(queries: int, keys: int, first: int) -> Array:
    """Return `causal_hidden` of a tile, kept: not to be written."""
    hidden = causal_hidden(queries, keys, first=first)
    hidden.flags.writeable = False
    return hidden
