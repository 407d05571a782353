"""Where the NaN of a row that sees no key reaches other rows by way of torch's matrix product.

On processors with AMX tiles torch's bfloat16 product reads past the end of a row, into the rows
that follow in memory (``mha_torch.rows_share_nan`` measures it and names the source). Two products
have NaN rows for their first factor: the weights (N, H, L, S') times the values, and the merged
heads (N, L, E), stored batch first or sequence first, times the output projection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.oracle.torch_answers import rows_share_nan

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem

TILE = 32  # terms to which the product is padded


def nan_past_rows(problem: Problem) -> Array:
    """Return the places (N, L, E) that a NaN stored in a later row reaches."""
    rows: Array = np.asarray(problem.masked_rows())
    if not rows.any() or not rows_share_nan(problem.case.dtype):
        return np.zeros(problem.output_shape, dtype=bool)
    heads = rows | rows_before_marked(rows, problem.weights_shape[-1])
    places = np.repeat(heads.swapaxes(1, 2), problem.v_head_dim, axis=2)
    if problem.case.form == "qkv":
        return places
    rows, width = np.asarray(places.any(axis=2)), problem.output_shape[2]
    batch_first = rows_before_marked(rows, width)
    sequence_first = rows_before_marked(rows.T, width).T
    # The output projection takes NaN of one head to all: 0 times NaN is NaN.
    return np.asarray(places | (rows | batch_first | sequence_first)[..., None])


def rows_before_marked(rows: Array, terms: int) -> Array:
    """Return the rows, stored in this order, that are followed by a marked one within a tile."""
    flat = rows.ravel()
    after = -(-(-terms % TILE) // max(terms, 1))  # rows that begin in what is read past the end
    found = np.zeros_like(flat)
    for distance in range(1, after + 1):
        found[:-distance] |= flat[distance:]
    return np.asarray(found.reshape(rows.shape))
