"""Work shared out among threads: pieces of one product, or of anything that is numbered.

A product is cut by rows, and few rows by columns too, into as many pieces as there are threads:
BLAS packs an operand anew for each, which costs up to 15 % where there are more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_numpy.engines.threads import (
    BLAS_SPREADS_FROM,
    SHARED_FROM,
    has_quick_kernels,
    holding_blas,
    run,
    single_threaded_blas,
    threads_for_a_job,
)
from mha_numpy.engines.tiles import even_share, spans

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_numpy.dtypes import Array


LEAST_ROWS = 128
LEAST_COLUMNS = 128
"""A piece of a product has that many rows and columns at least."""
BUFFER = 256
"""Numbers that NumPy buffers. From 2.3 on it copies rows that are shorter than its buffer into it
where an operand is broadcast: a tile times a column then takes 1.5 to 2 times as long."""
FEW_ROWS, MANY_MULTIPLICATIONS = 128, 1_000_000
"""Up to which rows, and from which size, a product is computed from the weight's side."""
LARGE_RESULT, QUICK_KERNEL = 1200, 1_000_000
"""OpenBLAS's quick kernels do up to so many multiplications, on one thread. For results of more
numbers than LARGE_RESULT they need the left operand by columns: 0.5 to 0.8 of the time, copied."""


def on_all_threads(work: Callable[[int], None], pieces: int) -> None:
    """Call `work` with 0 ... pieces - 1 on the pool, BLAS held to one thread, NumPy silent."""

    def quietly(index: int) -> None:
        with np.errstate(all="ignore"):  # the caller's state does not reach other threads
            np.setbufsize(BUFFER)  # until the end of this block, for this thread
            work(index)

    with single_threaded_blas:
        run(quietly, pieces, threads_for_a_job())


def product(left: Array, right: Array, bias: Array | None) -> Array:
    """Return left @ right.T + bias, a bias that broadcasts to the product: a new array.

    Large ones are done on BLAS's threads, or on the pool's where BLAS is held to one. Few rows of a
    wide layer are computed as (right @ left.T).T: OpenBLAS's AVX-512 kernels take 0.66 (32 rows) to
    0.9 (128 rows) of the time for it, its others the same. The result is then laid out column by
    column, which costs products of fewer multiplications as much again in what follows.
    """
    rows, columns = len(left), len(right)
    multiplications = rows * right.size
    if multiplications >= MANY_MULTIPLICATIONS and rows <= min(FEW_ROWS, columns // 4):
        return product(right, left, None if bias is None else bias[:, None]).T
    if multiplications >= SHARED_FROM and single_threaded_blas.held and threads_for_a_job() > 1:
        return spread_product(left, right, bias)
    few = rows < columns and rows * columns > LARGE_RESULT and multiplications <= QUICK_KERNEL
    quick = few and has_quick_kernels()
    if quick:
        left = np.asfortranarray(left)
    if quick or multiplications <= BLAS_SPREADS_FROM:
        out: Array = left.dot(right.T)
    else:
        with holding_blas(multiplications):
            out = left.dot(right.T)
    if bias is not None:
        out += bias
    return out


def spread_product(left: Array, right: Array, bias: Array | None) -> Array:
    """Return what `product` does, computed in pieces on the pool."""
    out = np.empty((len(left), len(right)), left.dtype)
    pieces = cut_product(len(left), len(right), threads_for_a_job())
    addend = None if bias is None else np.broadcast_to(bias, out.shape)

    def compute(index: int) -> None:
        rows, columns = pieces[index]
        piece = out[rows, columns]
        np.matmul(left[rows], right[columns].T, out=piece)
        if addend is not None:
            np.add(piece, addend[rows, columns], out=piece)

    on_all_threads(compute, len(pieces))
    return out


def cut_product(rows: int, columns: int, pieces: int) -> list[tuple[slice, slice]]:
    """Return about that number of pieces of a (rows, columns) product: by rows, then by columns."""
    by_rows = min(pieces, max(rows // LEAST_ROWS, 1))
    by_columns = min(-(-pieces // by_rows), max(columns // LEAST_COLUMNS, 1))
    of_rows = spans(0, rows, even_share(rows, -(-rows // by_rows)))
    of_columns = spans(0, columns, even_share(columns, -(-columns // by_columns)))
    return [(some, others) for some in of_rows for others in of_columns]
