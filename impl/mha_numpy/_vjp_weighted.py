"""The way back through attention that returned its weights, by tiles of the weights it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy._heads import Heads
from mha_numpy._streaming import RowSums
from mha_numpy._tiles import Tiles, choose_tiles
from mha_numpy._vjp_streaming import TILE_KEYS, Held, pull_back
from mha_numpy._weighted import attend_weighted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mha_numpy._masking import Masking
    from mha_numpy._vjp_targets import HeadGradients, Pull


def attend_weighted_vjp(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    masking: Masking,
    scale: float,
    *,
    tiles: Tiles | None = None,
    threads: int | None = None,
) -> tuple[NDArray[Any], NDArray[Any], Pull]:
    """Return (heads_out, weights, pull), 0 in rows that see no key.

    Shapes as in `attend_weighted`; there is at least one key. `tiles` are those of the way back.
    The weights belong to `pull`: they are to be copied before they are written to.
    """
    n, heads, queries, _ = q.shape
    keys = k.shape[2]
    heads_out, weights = attend_weighted(q, k, v, masking, scale, average=False, threads=threads)
    unseen = np.broadcast_to(masking.unseen(queries, keys, q.dtype), q.shape[:3])
    heads_out[unseen] = 0
    weights[unseen] = 0
    problem = Heads.of(q, k, v, heads_out, masking, scale)
    sums = RowSums(np.zeros(q.shape[:3], q.dtype), np.ones(q.shape[:3], q.dtype))
    if tiles is None:
        tiles = choose_tiles(n * heads, queries, keys, q.itemsize, wide=TILE_KEYS)

    def pull(d_heads: NDArray[Any], d_weights: NDArray[Any] | None, into: HeadGradients) -> None:
        pull_back(problem, sums, d_heads, into, tiles, threads, Held(weights, d_weights))

    return heads_out, weights, pull
