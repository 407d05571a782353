"""Which engine computes the heads of one call: the one place where that is decided.

The plain engine holds all scores, and leaves large products to BLAS's threads; flash goes by tiles
and shares heads and products out among the pool's. The switch lies where they balance, and moving
it by a factor of two costs some per cent near it.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from mha_numpy.attention import attend, draw_kept
from mha_numpy.engines.flash import attend_flash
from mha_numpy.engines.threads import holding_blas, threads_for_a_job
from mha_numpy.engines.tiles import slices

if TYPE_CHECKING:
    from mha_numpy.call import CallOptions, Heads, Scores
    from mha_numpy.dtypes import Array

    Results = tuple[Array, Array | None]

MOST_PLAIN = 524_288
"""Scores of all heads from which a second thread for them pays: two megabytes of float32."""
SHORT_HEAD = 4096
"""Scores of one head (L * S) up to which a call for each head costs more than its arithmetic."""


def choose_engine(options: CallOptions, scores: Scores) -> str:
    """Return "plain" or "flash" for scores of a shape (N, H, L, S).

    Dropout takes the plain engine: the generator draws for all weights at once. Raises ValueError
    where flash is asked for with dropout.
    """
    engine, drops = options.engine, options.dropout_p > 0
    if engine == "flash" and drops:
        raise ValueError(
            "`engine` is 'flash', but dropout needs all weights at once; pass engine='plain' or "
            "'auto', or no dropout."
        )
    if engine != "auto":
        return engine
    large = prod(scores) > MOST_PLAIN and scores[2] * scores[3] > SHORT_HEAD
    return "flash" if large and not drops else "plain"


def cut_batch(options: CallOptions, scores: Scores) -> list[slice]:
    """Return the samples of each share of a layer's batch, computed on one thread from end to end.

    A share has at most MOST_PLAIN scores, which the plain engine holds: its products of all heads
    take 0.6 to 0.9 of the time of flash's head by head, where heads are short. A batch of few
    scores or few samples, of long sequences, with dropout or static keys is one share: all of it.
    """
    n, per_sample = scores[0], prod(scores[1:])
    if n * per_sample <= (0 if options.always_share else MOST_PLAIN) or per_sample > MOST_PLAIN:
        return [slice(0, n)]
    fixed = options.static_k is not None or options.static_v is not None
    threads = threads_for_a_job()
    if options.engine == "flash" or options.dropout_p > 0 or fixed or n < threads:
        return [slice(0, n)]
    return slices(0, n, min(MOST_PLAIN // per_sample, -(-n // max(threads, 2))))


def attend_heads(heads: Heads, engine: str) -> Results:
    """Return (heads_out, weights or None) as in `attention.attend`.

    Rows that see no key are NaN where weights are needed and 0 elsewhere, as in torch.
    """
    options = heads.options
    need = options.need_weights
    average = need and options.average_attn_weights
    if engine == "flash":
        return attend_flash(*heads[:5], need_weights=need, average_weights=average)
    kept = None
    if options.dropout_p:
        kept = draw_kept(heads.scores, options.dropout_p, options.rng, heads.q.dtype)
    with holding_blas(heads.q.size * heads.k.shape[2]):
        return attend(
            *heads[:5],
            need_weights=need,
            average_weights=average,
            kept=kept,
            empty_rows_are_zero=not need,
        )
