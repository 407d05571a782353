"""How a problem's logits are cut into tiles that fit the cache.

Axes of the streaming engine: (N, G, R, L, S), where query head h = g * R + r reads key head g.
A block is what one thread does at a time: some of N, G and R whole or one of a kind, and a run of
queries; it goes through the keys tile by tile. The cut depends on sizes alone and never on the
number of threads, so that no result does either.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

TILE_BYTES = 512 * 1024
"""A tile of logits: half of the 1 MiB second-level cache, the operands take the rest.
Measured: 256 x 512 float32 is the best of 64...512 x 256...1024, by 3 to 15 %."""
TILE_KEYS = 512
LEAST_BLOCKS = 4
"""Small problems are cut into so many blocks at least, for the threads to share."""
LEAST_CELLS = 8192
"""Below so many logits a block is not worth handing to another thread (some 25 µs of work)."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Sizes of one block: matrices of one head each, queries of each, and keys at a time."""

    matrices: int
    queries: int
    keys: int


@dataclass(frozen=True, slots=True)
class Block:
    """The slices of axes N, G, R and L that one thread works on at a time."""

    batch: slice
    kv_heads: slice
    group: slice
    queries: slice

    @property
    def heads(self) -> tuple[slice, slice, slice]:
        """Return where the block lies in the axes N, G and R."""
        return self.batch, self.kv_heads, self.group


def choose_tiles(
    matrices: int, queries: int, keys: int, itemsize: int, *, wide: int = TILE_KEYS
) -> Tiles:
    """Return tile sizes for so many (queries, keys) matrices of logits.

    Tiles of long problems get about `wide` keys, and as many queries as the cache takes.
    """
    cells = TILE_BYTES // itemsize
    total = matrices * queries * keys
    cells = min(cells, max(total // LEAST_BLOCKS, LEAST_CELLS))
    width = even_share(keys, max(wide, cells // queries))
    height = even_share(queries, max(cells // width, 1))
    return Tiles(max(cells // (width * queries), 1) if height == queries else 1, height, width)


def even_share(length: int, most: int) -> int:
    """Return the part size, at most `most` or up to 15 more, that leaves no small remainder."""
    parts = -(-length // most)
    share = -(-length // parts)
    return min(length, -(-share // 16) * 16)


def cut(n: int, kv_heads: int, group: int, queries: int, tiles: Tiles) -> list[Block]:
    """Return the blocks of a problem, neighbours next to each other: they share keys in cache."""
    of_group = min(tiles.matrices, group)
    of_heads = min(max(tiles.matrices // group, 1), kv_heads)
    of_batch = min(max(tiles.matrices // (group * kv_heads), 1), n)
    return [
        Block(*slices)
        for slices in product(
            spans(0, n, of_batch),
            spans(0, kv_heads, of_heads),
            spans(0, group, of_group),
            spans(0, queries, tiles.queries),
        )
    ]


def spans(start: int, stop: int, step: int) -> list[slice]:
    """Return slices of `step`, the last perhaps shorter, that cover start ... stop."""
    return [slice(i, min(i + step, stop)) for i in range(start, stop, step)]
