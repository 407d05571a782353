"""The arrays of a problem as flash reads them: blocks of one head, in memory that is kept."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy.engines.tiles import HeadMasks
from mha_numpy.softmax import exponential

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from mha_numpy.engines.tiles import Tiles
    from mha_numpy.masks import Masking


@dataclass(frozen=True, slots=True)
class Problem:
    """q (N, H, L, D), k (N, Hkv, S, D), v (N, Hkv, S, Dv), out (N, H, L, Dv), and their masks."""

    q: NDArray[Any]
    k: NDArray[Any]
    v: NDArray[Any]
    out: NDArray[Any]
    masking: Masking
    scale: float
    tiles: Tiles

    @property
    def group(self) -> int:
        """Return how many query heads read a key head."""
        return int(self.q.shape[1] // self.k.shape[1])

    def masks(self, sample: int, head: int) -> HeadMasks:
        """Return the masks of a head."""
        unit = exponential(self.q.dtype).unit
        return HeadMasks.of(self.masking, sample, head, self.k.shape[2], unit)

    def queries(self, sample: int, head: int, rows: slice) -> NDArray[Any]:
        """Return a block of queries in scratch memory, times the scale and the unit of exp."""
        q = self.q[sample, head, rows]
        scale = self.scale * exponential(q.dtype).unit
        scaled: NDArray[Any] = np.multiply(q, scale, out=scratch(q.shape, q.dtype, "q"))
        return scaled

    def keys(self, sample: int, head: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return k and v of a key head in scratch memory: products of such rows are faster."""
        k, v = self.k[sample, head], self.v[sample, head]
        own_k, own_v = scratch(k.shape, k.dtype, "k"), scratch(v.shape, v.dtype, "v")
        own_k[...], own_v[...] = k, v
        return own_k, own_v


_own = threading.local()


def scratch(shape: tuple[int, ...], dtype: DTypeLike, name: str = "scores") -> NDArray[Any]:
    """Return an array of this thread's scratch memory, contiguous, its contents left over.

    Each name has memory of its own. It is kept: a fresh half megabyte costs more in page faults
    than a tile's exp.
    """
    size = prod(shape)
    held: dict[Any, NDArray[Any]] = _own.__dict__
    key = (name, dtype)
    if key not in held or held[key].size < size:
        held[key] = np.empty(size, dtype)
    return held[key][:size].reshape(shape)
