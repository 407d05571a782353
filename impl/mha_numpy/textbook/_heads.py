"""From projected arrays to merged heads: the one way that all batched textbook forms take."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mha_numpy.attention import attend, draw_kept
from mha_numpy.masks import NO_MASK, Masking
from mha_numpy.projections import merge_heads, split_projections

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def attend_slices(
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
    q, k, v = (split_projections(x, x.shape, 1, num_heads, True)[0] for x in (Q, K, V))
    scale = 1 / math.sqrt(q.shape[-1])
    kept = draw_kept((*q.shape[:3], k.shape[2]), dropout_p, rng, q.dtype)
    out, weights = attend(q, k, v, masking, scale, kept=kept)
    assert weights is not None  # noqa: S101 (need_weights is on; this tells the type checker)
    return merge_heads(out, batch_first=True), weights
