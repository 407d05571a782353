"""A layer shared out among threads: each takes whole samples, or whole heads, from input to output.

The threads meet once in a call and not after each product. How the work is cut depends on sizes
alone, so the result does not depend on the number of threads.

Samples are cut where there are several. Heads are cut where rows are few, so that the weights are
what is large: each thread reads those of its own heads, and what the heads add to the output is
summed behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy._threads import get_num_threads, run, single_threaded_blas
from mha_numpy._tiles import spans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from mha_numpy._layer import Call

    Results = tuple[NDArray[Any], NDArray[Any] | None]

PIECE_ROWS = 512
LEAST_SAMPLES = 4
LARGEST_LENGTH = 1024
"""Up to this length, and from so many samples on, whole samples are one thread's work."""
FEW_ROWS = 512
"""Up to so many rows in all the heads are shared out."""
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


def cut_heads(num_heads: int, rows: int, multiplications: int) -> list[slice]:
    """Return the heads of each piece; none where rows are many."""
    if rows > FEW_ROWS:
        return []
    return spans(0, num_heads, -(-num_heads // pieces_of(multiplications)))


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
        output[piece], part = compute(call.of_samples(piece))
        if weights is not None:
            weights[piece] = part

    share(some, len(pieces))
    return output, weights


def by_heads(call: Call, pieces: list[slice], compute: Callable[[Call], Results]) -> Results:
    """Return what `compute` gives for the whole call, from calls of some heads each."""
    calls = [call.of_heads(piece) for piece in pieces]
    found: list[Results] = [(np.empty(0), None)] * len(pieces)

    def some(index: int) -> None:
        found[index] = compute(calls[index])

    share(some, len(pieces))
    output = summed([part for part, _ in found])
    bias = call.parameters.out_proj.bias
    if bias is not None:
        output += bias
    weights = [part for _, part in found if part is not None]
    if not weights:
        return output, None
    if not call.options.average_attn_weights:
        return output, np.concatenate(weights, axis=1)
    for mean, piece in zip(weights, pieces, strict=True):
        np.multiply(mean, (piece.stop - piece.start) / call.options.num_heads, out=mean)
    return output, summed(weights)


def summed(parts: Sequence[NDArray[Any]] | NDArray[Any]) -> NDArray[Any]:
    """Return the sum of all parts, in the first one's memory."""
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


def share(compute: Callable[[int], None], pieces: int) -> None:
    """Compute all pieces, each on one thread."""

    def quietly(index: int) -> None:
        with np.errstate(all="ignore"):  # the caller's state does not reach other threads
            compute(index)

    with single_threaded_blas:
        run(quietly, pieces, get_num_threads())
