"""From projected arrays to merged heads: the one way that all batched textbook forms take."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mha_numpy.attention import attend, draw_kept
from mha_numpy.masks import NO_MASK, Masking

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def attend_heads(
    Q: NDArray[Any],
    K: NDArray[Any],
    V: NDArray[Any],
    num_heads: int,
    masking: Masking = NO_MASK,
    *,
    dropout_p: float = 0.0,
    rng: np.random.Generator | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return (merged, weights) of attention in equal slices of the width, one a head.

    Q (N, L, H*D), K (N, S, H*D), V (N, S, H*Dv) give merged (N, L, H*Dv) and weights (N, H, L, S).
    The scale is 1 / sqrt(D), of the width of a head.
    """
    q, k, v = (split_heads(array, num_heads) for array in (Q, K, V))
    scale = 1 / math.sqrt(q.shape[-1])
    kept = draw_kept((*q.shape[:3], k.shape[2]), dropout_p, rng, q.dtype)
    out, weights = attend(q, k, v, masking, scale, kept=kept)
    assert weights is not None  # noqa: S101 (need_weights is on; this tells the type checker)
    return merge_heads(out), weights


def split_heads(array: NDArray[Any], num_heads: int) -> NDArray[Any]:
    """Return (N, H, L, D) of (N, L, H*D): head h has the columns from h*D to (h+1)*D."""
    n, rows, width = array.shape
    return array.reshape(n, rows, num_heads, width // num_heads).transpose(0, 2, 1, 3)


def merge_heads(heads: NDArray[Any]) -> NDArray[Any]:
    """Return (N, L, H*D) of (N, H, L, D): the reverse of `split_heads`."""
    n, num_heads, rows, width = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(n, rows, num_heads * width)
