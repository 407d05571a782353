"""y = x @ weight.T + bias for many rows: one product cut into pieces, side by side on the pool.

BLAS's own threads would do the product as fast, but OpenBLAS's go on spinning for some 26 ms, on a
core that attention's tiles need next.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy._threads import get_num_threads, in_a_piece, run, single_threaded_blas
from mha_numpy._tiles import even_share, spans

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

BLAS_SPREADS_FROM = 262_144
"""OpenBLAS takes a second thread for a product of more multiplications than this; up to some ten
times as many, that costs more than it saves."""
SPREAD_FROM = 8_000_000
"""From so many multiplications on, the time saved is more than that of waking a thread."""
PIECE_ROWS = 512
"""Rows of a piece: BLAS packs the whole weight anew for each; 512 cost 1 to 6 %, 128 up to 30 %."""
LEAST_COLUMNS = 128
LEAST_PIECES = 4
LEAST_PIECE = 4_000_000
"""Multiplications below which a piece is not worth handing to another thread (some 40 µs)."""

_FREE: AbstractContextManager[None] = nullcontext()


def affine(x: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any] | None) -> NDArray[Any]:
    """Return x @ weight.T + bias, x (rows, in), weight (out, in), bias (out,), a new array."""
    multiplications = x.shape[0] * weight.size
    if multiplications >= SPREAD_FROM and not in_a_piece():
        return spread_affine(x, weight, bias)
    if multiplications > BLAS_SPREADS_FROM:
        with single_threaded_blas:
            out: NDArray[Any] = x @ weight.T
    else:
        out = x @ weight.T
    if bias is not None:
        out += bias
    return out


def holding_blas(multiplications: int) -> AbstractContextManager[None]:
    """Return a context in which BLAS takes no second thread for products too small to gain by it.

    After one it would spin for milliseconds, on a core that the next call's threads need.
    """
    too_small = BLAS_SPREADS_FROM < multiplications < SPREAD_FROM
    return single_threaded_blas if too_small else _FREE


def spread_affine(
    x: NDArray[Any],
    weight: NDArray[Any],
    bias: NDArray[Any] | None,
    *,
    threads: int | None = None,
) -> NDArray[Any]:
    """Return what `affine` does, computed in pieces.

    The cut depends on the sizes alone, so the result does not depend on the number of threads.
    """
    rows, width = x.shape[0], weight.shape[0]
    out = np.empty((rows, width), x.dtype)
    pieces = cut_product(rows, x.shape[1], width)
    transposed = weight.T

    def compute(index: int) -> None:
        of_rows, of_columns = pieces[index]
        piece = out[of_rows, of_columns]
        with np.errstate(all="ignore"):
            np.matmul(x[of_rows], transposed[:, of_columns], out=piece)
            if bias is not None:
                piece += bias[of_columns]

    with single_threaded_blas:
        run(compute, len(pieces), get_num_threads() if threads is None else threads)
    return out


def cut_product(rows: int, inner: int, columns: int) -> list[tuple[slice, slice]]:
    """Return the pieces of a (rows, columns) product: by rows, few rows by columns too."""
    height = even_share(rows, PIECE_ROWS)
    of_rows = spans(0, rows, height)
    wanted = min(
        -(-LEAST_PIECES // max(len(of_rows), 1)),
        max(height * inner * columns // LEAST_PIECE, 1),
        max(columns // LEAST_COLUMNS, 1),
    )
    of_columns = spans(0, columns, even_share(columns, -(-columns // wanted)))
    return [(some, others) for some in of_rows for others in of_columns]
