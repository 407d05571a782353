"""A layer's samples shared out among threads: each takes whole ones, from projection to output.

The threads meet once in a call and not after each product. How the work is cut depends on sizes
alone, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy._threads import get_num_threads, run, single_threaded_blas
from mha_numpy._tiles import spans

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from mha_numpy._layer import Call

    Results = tuple[NDArray[Any], NDArray[Any] | None]

PIECE_ROWS = 512
LEAST_SAMPLES = 4
LARGEST_LENGTH = 1024
"""Up to this length, and from so many samples on, whole samples are one thread's work."""
SHARED_FROM = 16_000_000
"""Multiplications from which a second thread saves more than waking it costs, some 50 µs."""
EVEN_FROM = 160_000_000
"""From so many on there are four pieces, for evenness; below, two: larger products are faster."""
MANY_FROM = 1_600_000_000
"""From so many on there are eight, for machines of more than four cores."""


def pieces_of(multiplications: int) -> int:
    """Return in how many pieces to cut so much work: 1, 2, 4 or 8."""
    if multiplications < SHARED_FROM:
        return 1
    if multiplications < EVEN_FROM:
        return 2
    return 4 if multiplications < MANY_FROM else 8


def cut_samples(n: int, length: int, multiplications: int) -> list[slice]:
    """Return the samples of each piece; none where samples are few, or long."""
    if n < LEAST_SAMPLES or length > LARGEST_LENGTH:
        return []
    share = -(-n // pieces_of(multiplications))
    return spans(0, n, min(max(PIECE_ROWS // max(length, 1), 1), share))


def by_samples(call: Call, pieces: list[slice], compute: Callable[[Call], Results]) -> Results:
    """Return what `compute` gives for the whole call, from calls of some samples each."""
    query, key = call.inputs[:2]
    options, keys = call.options, key.shape[1] + call.masking.appended
    output = np.empty((*query.shape[:2], call.parameters.out_proj.weight.shape[0]), query.dtype)
    heads = () if options.average_attn_weights else (options.num_heads,)
    shape = (len(query), *heads, query.shape[1], keys)
    weights = np.empty(shape, query.dtype) if options.need_weights else None

    def some(index: int) -> None:
        piece = pieces[index]
        with np.errstate(all="ignore"):  # the caller's state does not reach other threads
            output[piece], part = compute(call.of_samples(piece))
        if weights is not None:
            weights[piece] = part

    with single_threaded_blas:
        run(some, len(pieces), get_num_threads())
    return output, weights
