"""A problem of the streaming engine: arrays with the heads' axis split in two, masks by tile.

Axes (N, G, R, L, S): query head h = g * R + r reads key head g. All by views; nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy._tiles import Block, even_share, spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from mha_numpy._masking import Masking


@dataclass(frozen=True, slots=True)
class Heads:
    """q (N, G, R, L, D), k (N, G, 1, S, D), v (N, G, 1, S, Dv), out (N, G, R, L, Dv), masks."""

    q: NDArray[Any]
    k: NDArray[Any]
    v: NDArray[Any]
    out: NDArray[Any]
    hidden: tuple[NDArray[np.bool_], ...]
    bias: tuple[NDArray[Any], ...]
    causal: bool
    appended: int
    scale: float

    @staticmethod
    def of(
        q: NDArray[Any],
        k: NDArray[Any],
        v: NDArray[Any],
        out: NDArray[Any],
        masking: Masking,
        scale: float,
    ) -> Heads:
        """Split the heads of q, out (N, H, L, .), k, v (N, Hkv, S, .) and of all masks."""
        groups = k.shape[1]
        return Heads(
            q=split_heads(q, groups),
            k=product_ready(k)[:, :, None],
            v=product_ready(v)[:, :, None],
            out=split_heads(out, groups),
            hidden=tuple(split_heads(mask, groups) for mask in masking.hidden),
            bias=tuple(split_heads(mask, groups) for mask in masking.bias),
            causal=masking.causal,
            appended=masking.appended,
            scale=scale,
        )

    def key_tiles(self, block: Block, most: int) -> list[slice]:
        """Return the keys that the block may see, in tiles of at most so many (or 15 more).

        Left out are the future of its last query and the keys that padding hides at both ends.
        Under the causal rule one tile starts at the block's first query, so that the tiles before
        need no mask.
        """
        keys = self.k.shape[3]
        first, last = self._unpadded(block)
        if not self.causal:
            return tiles_between([first, last], most)
        past = keys - self.appended
        diagonal, future = block.queries.start, min(block.queries.stop, past)
        bounds = [min(max(bound, first), last) for bound in (first, min(diagonal, past), future)]
        appended = [min(max(bound, first), last) for bound in (past, keys)]
        return tiles_between(bounds, most) + tiles_between(appended, most)

    def hidden_tiles(self, block: Block, keys: slice) -> Iterator[NDArray[np.bool_]]:
        """Yield what hides cells of the tile: booleans that broadcast to it, True = hidden."""
        for mask in self.hidden:
            tile = part(mask, block, keys)
            if tile.shape[3] > 1 or tile.any():
                yield tile
        past = self.k.shape[3] - self.appended
        first = block.queries.start
        if self.causal and first + 1 < keys.stop <= past:
            queries = block.queries.stop - first
            yield future(queries, keys.stop - keys.start, keys.start - first)

    def bias_tiles(self, block: Block, keys: slice) -> Iterator[NDArray[Any]]:
        """Yield what is added to the tile: numbers of the problem's dtype that broadcast to it."""
        for mask in self.bias:
            yield part(mask, block, keys).astype(self.q.dtype, copy=False)

    def _unpadded(self, block: Block) -> tuple[int, int]:
        """Return the first key and the end of the keys that some sample of the block sees."""
        first, last = 0, self.k.shape[3]
        for mask in self.hidden:
            if mask.shape[1:4] == (1, 1, 1) and mask.shape[4] == self.k.shape[3]:
                padding = part(mask, block, slice(None))
                seen = np.flatnonzero(~np.logical_and.reduce(padding, axis=0))
                if not seen.size:
                    return 0, 0
                first, last = max(first, int(seen[0])), min(last, int(seen[-1]) + 1)
        return first, max(first, last)


def split_heads(array: NDArray[Any], groups: int) -> NDArray[Any]:
    """Return (N, H, ...) as (N, G, H / G, ...), or (N, 1, ...) as (N, 1, 1, ...): a view."""
    n, heads, *rest = array.shape
    if heads == 1:
        return array[:, :, None]
    return array.reshape(n, groups, heads // groups, *rest)


def product_ready(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array itself where BLAS reads its matrices as they lie, else a copy in C order.

    NumPy multiplies matrices of any other layout in a loop of its own, tens of times slower.
    """
    rows, columns = array.strides[-2:]
    item = array.itemsize
    if not rows % item and columns == item and rows >= item * array.shape[-1]:
        return array
    return np.ascontiguousarray(array)


def part(mask: NDArray[Any], block: Block, keys: slice) -> NDArray[Any]:
    """Return the block's part of a mask, axes of size 1 left alone."""
    places = (*block.heads, block.queries, keys)
    return mask[
        tuple(
            place if size > 1 else slice(None)
            for place, size in zip(places, mask.shape, strict=True)
        )
    ]


def tiles_between(bounds: list[int], most: int) -> list[slice]:
    """Return tiles of even length that cover first ... last bound and start at each of them."""
    return [
        tile
        for start, stop in pairwise(bounds)
        if stop > start
        for tile in spans(start, stop, even_share(stop - start, most))
    ]


@lru_cache(maxsize=8)
def future(queries: int, keys: int, first: int) -> NDArray[np.bool_]:
    """Return (L, S) booleans, True where key first + j comes after query i; not to be written."""
    hidden = np.arange(first, first + keys) > np.arange(queries)[:, None]
    hidden.flags.writeable = False
    return hidden
