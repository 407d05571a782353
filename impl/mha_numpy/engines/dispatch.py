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
from mha_numpy.engines.parallel import on_all_threads, pieces_of
from mha_numpy.engines.threads import holding_blas
from mha_numpy.engines.tiles import spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mha_numpy.call import Options
    from mha_numpy.masks import Masking

LONG_HEAD = 65_536
"""Scores of one head (L * S) from which flash is faster: a quarter of a megabyte of float32."""
MOST_PLAIN = 4_194_304
"""Scores of all heads from which memory and threads decide for flash: 16 megabytes of float32."""
PIECE_SCORES = 262_144
"""Scores of a piece of samples: one megabyte of float32, which stays in the cache."""


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
    shape = (*q.shape[:3], k.shape[2])
    if choose_engine(options, shape) == "flash":
        need, average = options.need_weights, options.average_attn_weights
        return attend_flash(
            q, k, v, masking, scale, need_weights=need, average_weights=need and average
        )
    kept = draw_kept(shape, options.dropout_p, options.rng, q.dtype)
    pieces = cut_samples(shape, q.shape[3])
    if len(pieces) > 1:
        return _attend_by_samples(q, k, v, masking, scale, options, kept, pieces)
    with holding_blas(prod(shape) * q.shape[3]):
        return _attend_plain(q, k, v, masking, scale, options, kept)


def cut_samples(scores: tuple[int, ...], width: int) -> list[slice]:
    """Return the samples of each piece: PIECE_SCORES at most, all where the work is little."""
    n, *of_sample = scores
    share = -(-n // pieces_of(2 * prod(scores) * width))
    if share < n:
        share = min(max(PIECE_SCORES // prod(of_sample), 1), share)
    return spans(0, n, max(share, 1))


def _attend_plain(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    masking: Masking,
    scale: float,
    options: Options,
    kept: NDArray[Any] | None,
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    need = options.need_weights
    zero = not (need or masking.is_empty)
    heads_out, weights = attend(
        q, k, v, masking, scale, need_weights=need, kept=kept, empty_rows_are_zero=zero
    )
    if weights is not None and options.average_attn_weights:
        weights = np.add.reduce(weights, axis=1)
        weights /= q.shape[1]
    return heads_out, weights


def _attend_by_samples(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    masking: Masking,
    scale: float,
    options: Options,
    kept: NDArray[Any] | None,
    pieces: list[slice],
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Compute `_attend_plain` of some samples at a time, whose scores stay in the cache."""
    n, heads, queries, _ = q.shape
    heads_out = np.empty((n, queries, heads, v.shape[3]), q.dtype).transpose(0, 2, 1, 3)
    own_heads = () if options.average_attn_weights else (heads,)
    shape = (n, *own_heads, queries, k.shape[2])
    weights = np.empty(shape, q.dtype) if options.need_weights else None

    def compute(index: int) -> None:
        some = pieces[index]
        own_kept = None if kept is None else kept[some]
        masks = masking.of_samples(some)
        found = _attend_plain(q[some], k[some], v[some], masks, scale, options, own_kept)
        heads_out[some] = found[0]
        if weights is not None:
            weights[some] = found[1]

    on_all_threads(compute, len(pieces))
    return heads_out, weights
