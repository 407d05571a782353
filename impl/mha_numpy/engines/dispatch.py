"""Which engine computes the heads of one call: the one place where that is decided.

The plain engine holds all scores; flash goes by tiles and shares the heads out among threads. The
switch lies where they balance, and moving it by a factor of two costs some per cent near it.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy.attention import attend, draw_kept
from mha_numpy.engines.flash import attend_flash
from mha_numpy.engines.threads import holding_blas

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mha_numpy.call import Options
    from mha_numpy.masks import Masking

LONG_HEAD = 65_536
"""Scores of one head (L * S) from which flash is faster: a quarter of a megabyte of float32."""
MOST_PLAIN = 4_194_304
"""Scores of all heads from which memory and threads decide for flash: 16 megabytes of float32."""


def choose_engine(
    options: Options, scores: tuple[int, ...], *, most_plain: int = MOST_PLAIN
) -> str:
    """Return "plain" or "flash" for scores (N, H, L, S); raise ValueError where it cannot be.

    Dropout takes the plain engine: the generator draws for all weights at once.
    """
    drops = options.dropout_p > 0
    if options.engine == "flash" and drops:
        raise ValueError(
            "`engine` is 'flash', but dropout needs all weights at once; pass engine='plain' or "
            "'auto', or no dropout."
        )
    if options.engine != "auto":
        return options.engine
    large = scores[2] * scores[3] > LONG_HEAD or prod(scores) > most_plain
    return "flash" if large and not drops else "plain"


def attend_heads(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    masking: Masking,
    scale: float,
    options: Options,
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return (heads_out, weights), weights None where they are not needed.

    Shapes as in `attention.attend`; weights (N, H, L, S), or their mean over the heads (N, L, S)
    where `average_attn_weights`. Rows that see no key are NaN where weights are needed and 0
    elsewhere, as in torch.
    """
    need, average = options.need_weights, options.average_attn_weights
    shape = (*q.shape[:3], k.shape[2])
    if choose_engine(options, shape) == "flash":
        return attend_flash(
            q, k, v, masking, scale, need_weights=need, average_weights=need and average
        )
    with holding_blas(prod(shape) * q.shape[3]):
        heads_out, weights = attend(
            q,
            k,
            v,
            masking,
            scale,
            need_weights=need,
            kept=draw_kept(shape, options.dropout_p, options.rng, q.dtype),
            empty_rows_are_zero=not (need or masking.is_empty),
        )
    if weights is not None and average:
        weights = np.add.reduce(weights, axis=1)
        weights /= q.shape[1]
    return heads_out, weights
