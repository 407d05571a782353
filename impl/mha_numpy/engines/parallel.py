"""Work shared out among threads: pieces of one product, or of anything that is numbered.

A product is cut by rows, and few rows by columns too, into as many pieces as there are threads:
BLAS packs an operand anew for each, which costs up to 15 % where there are more.

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

SHARED_FROM = 16_000_000
"""Multiplications from which a second thread saves more than waking it costs, some 50 µs."""
EVEN_FROM = 160_000_000
"""Multiplications from which there are four pieces for evenness; below, two."""
MANY_FROM = 1_600_000_000
"""Multiplications from which there are eight, for machines of more than four cores."""
LEAST_ROWS = 128
LEAST_COLUMNS = 128
"""A piece of a product has that many rows and columns at least."""
FEW_ROWS = 128


def pieces_of(multiplications: int) -> int:
    """Return in how many pieces to cut that number of multiplications: 1, 2, 4 or 8."""
    if multiplications < SHARED_FROM:
        return 1
    if multiplications < EVEN_FROM:
        return 2
    return 4 if multiplications < MANY_FROM else 8


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
    if multiplications >= SHARED_FROM and get_num_threads() > 1 and not in_a_piece():
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
    threads = get_num_threads() if threads is None else threads
    pieces = cut_product(len(left), len(right), min(pieces_of(out.size * left.shape[1]), threads))
    addend = None if bias is None else np.broadcast_to(bias, out.shape)

    def compute(index: int) -> None:
        rows, columns = pieces[index]
        piece = out[rows, columns]
        np.matmul(left[rows], right[columns].T, out=piece)
        if addend is not None:
            np.add(piece, addend[rows, columns], out=piece)

    on_all_threads(compute, len(pieces), threads)
    return out


def cut_product(rows: int, columns: int, pieces: int) -> list[tuple[slice, slice]]:
    """Return about that number of pieces of a (rows, columns) product: by rows, then by columns."""
    by_rows = min(pieces, max(rows // LEAST_ROWS, 1))
    by_columns = min(-(-pieces // by_rows), max(columns // LEAST_COLUMNS, 1))
    of_rows = spans(0, rows, even_share(rows, -(-rows // by_rows)))
    of_columns = spans(0, columns, even_share(columns, -(-columns // by_columns)))
    return [(some, others) for some in of_rows for others in of_columns]
