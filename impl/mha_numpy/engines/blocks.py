"""A problem as flash reads it, block by block of one head's queries, in memory that is kept."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mha_numpy.engines.threads import this_thread
from mha_numpy.engines.tiles import Tiles, future_mask, mask_part, of_head, tiles_between

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import DTypeLike

    from mha_numpy.dtypes import Array
    from mha_numpy.masks import Masking
    from mha_numpy.softmax import Exponential


class TiledCall(NamedTuple):
    """q (N, H, L, D), k (N, Hkv, S, D), v (N, Hkv, S, Dv), out (N, H, L, Dv), and their masks."""

    q: Array
    k: Array
    v: Array
    out: Array
    masking: Masking
    scale: float
    tiles: Tiles
    exp: Exponential

    def query_heads(self, key_head: int) -> range:
        """Return the query heads that read a key head."""
        group = self.q.shape[1] // self.k.shape[1]
        return range(key_head * group, (key_head + 1) * group)

    def keys(self, sample: int, head: int) -> tuple[Array, Array]:
        """Return k and v of a key head, copied to be contiguous: their products are faster."""
        k, v = self.k[sample, head], self.v[sample, head]
        if k.flags.c_contiguous and v.flags.c_contiguous:
            return k, v
        own_k, own_v = scratch(k.shape, k.dtype, "k"), scratch(v.shape, v.dtype, "v")
        own_k[...], own_v[...] = k, v
        return own_k, own_v


class Block:
    """Some queries of one head, times the scale and the unit of exp, and the keys they may see.

    `shift` (rows, 1) is subtracted from the scores; None where they need none. Where `held`, the
    tiles of all keys stay as they were written.
    """

    shift: Array | None = None
    overwrites = False  # whether the hidden are written, which lets no inf or NaN remain

    def __init__(
        self, problem: TiledCall, place: tuple[int, int, slice], k: Array, *, held: bool = False
    ) -> None:
        sample, head, rows = self.place = place
        self.rows, self.k, self.num_heads = rows, k, problem.q.shape[1]
        q = problem.q[self.place]
        # Taken once: what is too large to be kept by `scratch` is other memory at each call.
        self._held = scratch((len(q) * len(k),), q.dtype, "held") if held else None
        self._exp, self._unit = problem.exp
        self.q = np.multiply(q, problem.scale * self._unit, out=scratch(q.shape, q.dtype, "q"))
        masking = problem.masking
        self._hidden = of_head(masking.hidden, sample, head)
        self._bias = of_head(masking.bias, sample, head)
        # The appended keys lie outside the causal rule.
        self._causal, self._past = masking.causal, len(k) - masking.appended
        self.key_tiles = self._cut_keys(problem.tiles.keys)

    def tile(self, keys: slice) -> Array:
        """Return scratch memory for one tile, contiguous."""
        rows = len(self.q)
        if self._held is None:
            return scratch((rows, keys.stop - keys.start), self.q.dtype)
        return self._held[rows * keys.start : rows * keys.stop].reshape(rows, -1)

    def powers(self, keys: slice) -> Array:
        """Return E = exp(scale * q k^T + M - shift) of one tile, 0 where it is hidden.

        Without a shift the hidden are multiplied by 0: the exponential of -inf takes longer.
        """
        tile = self._scores(keys, hide=self.shift is not None)
        if self.shift is not None:
            tile -= self.shift
        self._exp(tile, out=tile)
        for hidden in () if self.shift is not None else self._hidden_tiles(keys):
            if self.overwrites:
                np.copyto(tile, 0, where=hidden)
            else:
                tile *= (~hidden).astype(tile.dtype)
        return tile

    def maxima(self) -> Array:
        """Return the largest score of each row, (rows, 1), and 0 for a row that sees no key."""
        maxima = np.full((len(self.q), 1), -np.inf, self.q.dtype)
        for keys in self.key_tiles:
            np.maximum(maxima, np.maximum.reduce(self._scores(keys), 1, keepdims=True), out=maxima)
        maxima[maxima == -np.inf] = 0
        return maxima

    def _scores(self, keys: slice, *, hide: bool = True) -> Array:
        tile = np.matmul(self.q, self.k[keys].T, out=self.tile(keys))
        for mask in self._bias:
            tile += mask_part(mask, self.rows, keys).astype(tile.dtype, copy=False) * self._unit
        for hidden in self._hidden_tiles(keys) if hide else ():
            tile += np.where(hidden, -np.inf, 0).astype(tile.dtype)
        return tile

    def _hidden_tiles(self, keys: slice) -> Iterator[Array]:
        """Yield what hides scores of the tile: booleans that broadcast to it, True = hidden."""
        rows = self.rows
        for mask in self._hidden:
            tile = mask_part(mask, rows, keys)
            if len(tile) > 1 or tile.any():
                yield tile
        if self._causal and rows.start + 1 < keys.stop <= self._past:
            yield future_mask(len(self.q), keys.stop - keys.start, first=keys.start - rows.start)

    def _cut_keys(self, most: int) -> list[slice]:
        """Return the keys that the block may see, in tiles of at most `most` (or 15 more).

        Left out are the future of its last query and the keys that padding hides at both ends.
        Under the causal rule one tile starts at the block's first query, so that the tiles before
        need no mask.
        """
        first, last = self._unpadded()
        if not self._causal:
            return tiles_between([first, last], most)
        bounds = [first, min(self.rows.start, self._past), min(self.rows.stop, self._past)]
        appended = [self._past, len(self.k)]
        seen, more = ([min(max(key, first), last) for key in keys] for keys in (bounds, appended))
        return tiles_between(seen, most) + tiles_between(more, most)

    def _unpadded(self) -> tuple[int, int]:
        """Return the first key and the end of the keys that padding leaves visible."""
        first, last = 0, len(self.k)
        for mask in self._hidden:
            if mask.shape == (1, len(self.k)):
                seen = np.flatnonzero(~mask[0])
                if not seen.size:
                    return 0, 0
                first, last = max(first, int(seen[0])), min(last, int(seen[-1]) + 1)
        return first, max(first, last)


MOST_KEPT = 1_048_576
"""Numbers of scratch memory that a thread keeps under one name: keys of a very long sequence are
copied into memory that is freed with the task."""


def scratch(shape: tuple[int, ...], dtype: DTypeLike, name: str = "scores") -> Array:
    """Return an array of this thread's scratch memory, contiguous, its contents left over.

    Each name has memory of its own, as has a call inside another (of a signal handler). Up to
    MOST_KEPT numbers are kept: a fresh half megabyte costs more in page faults than a tile's exp.
    """
    size = prod(shape)
    if size > MOST_KEPT:
        return np.empty(shape, dtype)
    held, key = this_thread.scratch, (name, dtype, this_thread.jobs)
    if key not in held or held[key].size < size:
        held[key] = np.empty(size, dtype)
    return held[key][:size].reshape(shape)
