"""Which engine computes the heads of one call: the one place where that is decided.

The plain engine holds all scores; flash goes by tiles and shares the heads out among threads. The
switch lies where they balance, and moving it by a factor of two costs some per cent near it.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy.attention import attend, draw_kept
from mha_numpy.call import Heads
from mha_numpy.engines.flash import attend_flash
from mha_numpy.engines.parallel import on_all_threads, pieces_of
from mha_numpy.engines.threads import holding_blas
from mha_numpy.engines.tiles import spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Results = tuple[NDArray[Any], NDArray[Any] | None]

LONG_HEAD = 65_536
"""Scores of one head (L * S) from which flash is faster: a quarter of a megabyte of float32."""
MOST_PLAIN = 4_194_304
"""Scores of all heads from which memory and threads decide for flash: 16 megabytes of float32."""
PIECE_SCORES = 262_144
"""Scores of a piece of samples: one megabyte of float32, which stays in the cache."""


def choose_engine(heads: Heads, *, most_plain: int = MOST_PLAIN) -> str:
    """Return "plain" or "flash"; raise ValueError where the call asks for what cannot be.

    Dropout takes the plain engine: the generator draws for all weights at once.
    """
    engine, drops, scores = heads.options.engine, heads.options.dropout_p > 0, heads.scores
    if engine == "flash" and drops:
        raise ValueError(
            "`engine` is 'flash', but dropout needs all weights at once; pass engine='plain' or "
            "'auto', or no dropout."
        )
    if engine != "auto":
        return engine
    large = scores[2] * scores[3] > LONG_HEAD or prod(scores) > most_plain
    return "flash" if large and not drops else "plain"


def attend_heads(heads: Heads) -> Results:
    """Return (heads_out, weights), weights None where they are not needed.

    Shapes as in `attention.attend`; weights (N, H, L, S), or their mean over the heads (N, L, S)
    where `average_attn_weights`. Rows that see no key are NaN where weights are needed and 0
    elsewhere, as in torch.
    """
    options, scores, width = heads.options, heads.scores, heads.q.shape[3]
    need = options.need_weights
    if choose_engine(heads) == "flash":
        average = need and options.average_attn_weights
        return attend_flash(*heads[:5], need_weights=need, average_weights=average)
    kept = draw_kept(scores, options.dropout_p, options.rng, heads.q.dtype)
    pieces = cut_samples(scores, width)
    if len(pieces) > 1:
        return _attend_by_samples(heads, kept, pieces)
    with holding_blas(prod(scores) * width):
        return _attend_plain(heads, kept)


def cut_samples(scores: tuple[int, ...], width: int) -> list[slice]:
    """Return the samples of each piece: PIECE_SCORES at most, all where the work is little."""
    n, pieces = scores[0], pieces_of(2 * prod(scores) * width)
    if pieces == 1:
        return [slice(0, n)]
    return spans(0, n, min(max(PIECE_SCORES // prod(scores[1:]), 1), -(-n // pieces)))


def _attend_plain(heads: Heads, kept: NDArray[Any] | None) -> Results:
    need = heads.options.need_weights
    zero = not (need or heads.masking.is_empty)
    heads_out, weights = attend(*heads[:5], need_weights=need, kept=kept, empty_rows_are_zero=zero)
    if weights is not None and heads.options.average_attn_weights:
        weights = np.add.reduce(weights, axis=1)
        weights /= heads.q.shape[1]
    return heads_out, weights


def _attend_by_samples(heads: Heads, kept: NDArray[Any] | None, pieces: list[slice]) -> Results:
    """Compute `_attend_plain` of some samples at a time, whose scores stay in the cache."""
    q, k, v, masking, scale, options = heads
    n, num_heads, queries, keys = heads.scores
    heads_out = np.empty((n, queries, num_heads, v.shape[3]), q.dtype).transpose(0, 2, 1, 3)
    own_heads = () if options.average_attn_weights else (num_heads,)
    weights = np.empty((n, *own_heads, queries, keys), q.dtype) if options.need_weights else None

    def compute(index: int) -> None:
        some = pieces[index]
        own = Heads(q[some], k[some], v[some], masking.of_samples(some), scale, options)
        found = _attend_plain(own, None if kept is None else kept[some])
        heads_out[some] = found[0]
        if weights is not None:
            weights[some] = found[1]

    on_all_threads(compute, len(pieces))
    return heads_out, weights
