"""Work shared out among threads: whole samples of a layer, or pieces of one product.

Whole samples go from input to output on one thread, which meets the others once in a call. Where
samples are few, or long, each product is cut by rows, and few rows by columns too. The cut depends
on sizes alone, so the result does not depend on the number of threads.

BLAS's own threads would do a product as fast, but OpenBLAS's go on spinning for some 26 ms, on a
core that attention's tiles need next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy.engines.threads import get_num_threads, holding_blas, in_a_piece, run
from mha_numpy.engines.threads import single_threaded_blas as blas_on_one_thread
from mha_numpy.engines.tiles import even_share, spans

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from mha_numpy.call import Call

    Results = tuple[NDArray[Any], NDArray[Any] | None]

SAMPLE_ROWS = 256
"""Rows of a piece of whole samples: their scores stay in the cache."""
LEAST_SAMPLES = 4
LARGEST_LENGTH = 1024
"""Up to this length, and from so many samples on, whole samples are one thread's work."""
SHARED_FROM = 16_000_000
"""Multiplications from which a second thread saves more than waking it costs, some 50 µs."""
EVEN_FROM = 160_000_000
"""From so many on there are four pieces, for evenness; below, two: larger products are faster."""
MANY_FROM = 1_600_000_000
"""From so many on there are eight, for machines of more than four cores."""
PIECE_ROWS = 512
"""Rows of a product's piece: BLAS packs the whole weight anew for each; 512 cost 1 to 6 %."""
LEAST_COLUMNS = 128


def share_out(call: Call, compute: Callable[[Call], Results]) -> Results:
    """Compute the layer, its samples on several threads where that is worth it.

    Dropout draws for all weights at once, and keys that come projected are not cut.
    """
    options = call.options
    n, queries, keys = call.extent
    whole = n < LEAST_SAMPLES or max(queries, keys) > LARGEST_LENGTH or not options.batch_first
    if whole or options.dropout_p > 0 or not (options.static_k is options.static_v is None):
        return compute(call)
    (query, key, value), out_weight = call.inputs, call.parameters.out_proj.weight
    inputs, width = query.size + key.size + value.size, out_weight.shape[1]
    # Those of all products, appended keys and biases left out.
    multiplications = inputs * width + n * queries * (out_weight.size + 2 * keys * width)
    pieces = cut_samples(n, max(queries, keys), multiplications)
    return by_samples(call, pieces, compute) if len(pieces) > 1 else compute(call)


def pieces_of(multiplications: int) -> int:
    """Return in how many pieces to cut so much work: 1, 2, 4 or 8."""
    if multiplications < SHARED_FROM:
        return 1
    if multiplications < EVEN_FROM:
        return 2
    return 4 if multiplications < MANY_FROM else 8


def cut_samples(n: int, length: int, multiplications: int) -> list[slice]:
    """Return the samples of each piece; one piece where the work is little."""
    share = -(-n // pieces_of(multiplications))
    if share < n:
        share = min(max(SAMPLE_ROWS // max(length, 1), 1), share)
    return spans(0, n, share)


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

    on_all_threads(some, len(pieces))
    return output, weights


def on_all_threads(work: Callable[[int], None], pieces: int, threads: int | None = None) -> None:
    """Call `work` with 0 ... pieces - 1 on the pool, BLAS held to one thread, NumPy silent."""

    def quietly(index: int) -> None:
        with np.errstate(all="ignore"):  # the caller's state does not reach other threads
            work(index)

    with blas_on_one_thread:
        run(quietly, pieces, get_num_threads() if threads is None else threads)


def affine(x: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any] | None) -> NDArray[Any]:
    """Return x @ weight.T + bias, x (rows, in), weight (out, in), bias (out,), a new array."""
    multiplications = x.shape[0] * weight.size
    if multiplications >= SHARED_FROM and not in_a_piece():
        return spread_affine(x, weight, bias)
    with holding_blas(multiplications):
        out: NDArray[Any] = x @ weight.T
    if bias is not None:
        out += bias
    return out


def spread_affine(
    x: NDArray[Any],
    weight: NDArray[Any],
    bias: NDArray[Any] | None,
    *,
    threads: int | None = None,
) -> NDArray[Any]:
    """Return what `affine` does, computed in pieces."""
    out = np.empty((x.shape[0], weight.shape[0]), x.dtype)
    pieces = cut_product(x.shape[0], x.shape[1], weight.shape[0])
    transposed = weight.T

    def compute(index: int) -> None:
        of_rows, of_columns = pieces[index]
        piece = out[of_rows, of_columns]
        np.matmul(x[of_rows], transposed[:, of_columns], out=piece)
        if bias is not None:
            piece += bias[of_columns]

    on_all_threads(compute, len(pieces), threads)
    return out


def cut_product(rows: int, inner: int, columns: int) -> list[tuple[slice, slice]]:
    """Return the pieces of a (rows, columns) product: by rows, few rows by columns too."""
    of_rows = spans(0, rows, even_share(rows, PIECE_ROWS))
    wanted = -(-pieces_of(rows * inner * columns) // max(len(of_rows), 1))
    wanted = min(wanted, max(columns // LEAST_COLUMNS, 1))
    of_columns = spans(0, columns, even_share(columns, -(-columns // wanted)))
    return [(some, others) for some in of_rows for others in of_columns]
