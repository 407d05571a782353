"""Work shared out among threads: whole samples of a layer, or pieces of one product.

Whole samples go from input to output on one thread, which meets the others once in a call. Where
samples are few, or long, each product is cut by rows, and few rows by columns too. The cut depends
on sizes and not on the number of threads, and so do the results; only work of less than EVEN_FROM
multiplications is left whole on a single thread.

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
FEW_ROWS = 128


def share_out(call: Call, compute: Callable[[Call], Results]) -> Results:
    """Compute the layer, its samples on several threads where that is worth it.

    Dropout draws for all weights at once, and keys that come projected are not cut.
    """
    (query, key, value), options = call.inputs, call.options
    if len(query) < LEAST_SAMPLES or not options.batch_first or options.dropout_p > 0:
        return compute(call)
    n, queries, keys = len(query), query.shape[1], key.shape[1]
    if max(queries, keys) > LARGEST_LENGTH or not (options.static_k is options.static_v is None):
        return compute(call)
    out_weight = call.parameters.out_proj.weight
    inputs, width = query.size + key.size + value.size, out_weight.shape[1]
    # Those of all products, appended keys and biases left out.
    multiplications = inputs * width + n * queries * (out_weight.size + 2 * keys * width)
    pieces = cut_samples(n, max(queries, keys), multiplications)
    return by_samples(call, pieces, compute) if len(pieces) > 1 else compute(call)


def pieces_of(multiplications: int) -> int:
    """Return in how many pieces to cut that number of multiplications: 1, 2, 4 or 8."""
    if multiplications < SHARED_FROM:
        return 1
    if multiplications < EVEN_FROM:
        return min(2, get_num_threads())  # one thread would lose a fifth by cutting
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
    """Return x @ weight.T + bias, x (rows, in), weight (out, in), bias (out,): a new array.

    Few rows are computed as (weight @ x.T).T, which BLAS does in 0.6 to 0.9 of the time.
    """
    if len(x) <= min(FEW_ROWS, len(weight) // 4):
        return product(weight, x, None if bias is None else bias[:, None]).T
    return product(x, weight, bias)


def product(left: NDArray[Any], right: NDArray[Any], bias: NDArray[Any] | None) -> NDArray[Any]:
    """Return left @ right.T + bias, a bias that broadcasts to the product; large ones in pieces."""
    multiplications = len(left) * right.size
    if multiplications >= SHARED_FROM and not in_a_piece() and pieces_of(multiplications) > 1:
        return spread_product(left, right, bias)
    with holding_blas(multiplications):
        out: NDArray[Any] = left.dot(right.T)
    if bias is not None:
        out += bias
    return out


def spread_product(
    left: NDArray[Any],
    right: NDArray[Any],
    bias: NDArray[Any] | None,
    *,
    threads: int | None = None,
) -> NDArray[Any]:
    """Return what `product` does, computed in pieces."""
    out = np.empty((len(left), len(right)), left.dtype)
    pieces = cut_product(len(left), len(right), left.shape[1])
    addend = None if bias is None else np.broadcast_to(bias, out.shape)

    def compute(index: int) -> None:
        rows, columns = pieces[index]
        piece = out[rows, columns]
        np.matmul(left[rows], right[columns].T, out=piece)
        if addend is not None:
            np.add(piece, addend[rows, columns], out=piece)

    on_all_threads(compute, len(pieces), threads)
    return out


def cut_product(rows: int, columns: int, inner: int) -> list[tuple[slice, slice]]:
    """Return the pieces of a (rows, columns) product: by rows, few rows by columns too."""
    pieces = pieces_of(rows * inner * columns)
    of_rows = spans(0, rows, even_share(rows, max(PIECE_ROWS, -(-rows // pieces))))
    wanted = min(-(-pieces // max(len(of_rows), 1)), max(columns // LEAST_COLUMNS, 1))
    of_columns = spans(0, columns, even_share(columns, -(-columns // wanted)))
    return [(some, others) for some in of_rows for others in of_columns]
