"""In-projections of layers in which each head projects its own D channels of the inputs.

``projection="by_head"``: each head with a matrix of its own, torch's (E, E) with all entries 0 but
the H blocks (D, D) on the diagonal. ``projection="shared"``: the same block for all heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case

PROJECTIONS = frozenset({"by_head", "shared"})
ARRAYS = frozenset({"w_q", "w_k", "w_v", "b_q", "b_k", "b_v"})


def held_blocks(case: Case, array: Array) -> Array:
    """Return what such a layer holds of a weight (E, E) or a bias (E,): (B D, D) or (B D,).

    B is the number of heads, or 1 where all share one block.
    """
    heads, dim = case.heads_count, case.head_dim
    count = 1 if case.projection == "shared" else heads
    if array.ndim == 1:
        return array[: count * dim]
    every = np.arange(count)
    whole = array.reshape(heads, dim, heads, dim)
    return whole[every, :, every].reshape(count * dim, dim)


def spread(case: Case, held: Array) -> Array:
    """Return the weight (E, E) or the bias (E,) of blocks: the inverse of ``held_blocks``."""
    heads, dim = case.heads_count, case.head_dim
    if held.ndim == 1:
        return np.tile(held, heads) if case.projection == "shared" else held
    whole = np.zeros((heads, dim, heads, dim), held.dtype)
    every = np.arange(heads)
    whole[every, :, every] = held.reshape(-1, dim, dim)
    return whole.reshape(heads * dim, heads * dim)


def restricted(case: Case, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return arrays of in_proj by name as such a layer can hold them."""
    return {name: spread(case, held_blocks(case, array)) for name, array in arrays.items()}


def gradient_sums(case: Case, gradient: Array) -> Array:
    """Return a gradient of in_proj, (3 E, E) or (3 E,), of what the layer holds.

    It is 0 beside the blocks; a shared block has the sum over all heads, at the first.
    """
    heads, dim = case.heads_count, case.head_dim
    parts = gradient.reshape(3, heads, dim, *(heads, dim)[: 2 * (gradient.ndim - 1)])
    every = np.arange(heads)
    own = parts[:, every, :, every] if gradient.ndim == 2 else parts.swapaxes(0, 1)
    if case.projection == "shared":
        summed = np.zeros_like(own)
        summed[0] = own.sum(axis=0)
        own = summed
    placed = np.zeros_like(parts)
    if gradient.ndim == 2:
        placed[:, every, :, every] = own
    else:
        placed[:] = own.swapaxes(0, 1)
    return placed.reshape(gradient.shape)
