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
    own = _by_head(case, array)
    own = own[:1] if case.projection == "shared" else own
    return own.reshape(-1, *own.shape[2:])


def spread(case: Case, held: Array) -> Array:
    """Return the weight (E, E) or the bias (E,) of blocks: the inverse of ``held_blocks``."""
    return _placed(case, held.reshape(-1, case.head_dim, *held.shape[1:]))


def restricted(case: Case, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return arrays of in_proj by name as such a layer can hold them."""
    return {name: spread(case, held_blocks(case, array)) for name, array in arrays.items()}


def gradient_sums(case: Case, gradient: Array) -> Array:
    """Return a gradient of in_proj, (3 E, E) or (3 E,), of what the layer holds.

    It is 0 beside the blocks; a shared block has the sum over all heads, at the first.
    """
    return np.concatenate([_summed(case, part) for part in np.split(gradient, 3)])


def _summed(case: Case, gradient: Array) -> Array:
    own = _by_head(case, gradient)
    if case.projection == "shared":
        summed = np.zeros_like(own)
        summed[0] = own.sum(axis=0)
        own = summed
    return _placed(case, own)


def _by_head(case: Case, array: Array) -> Array:
    """Return the blocks on the diagonal of (E, E), (H, D, D), or the parts of (E,), (H, D)."""
    heads, dim = case.heads_count, case.head_dim
    if array.ndim == 1:
        return array.reshape(heads, dim)
    every = np.arange(heads)
    return np.asarray(array.reshape(heads, dim, heads, dim)[every, :, every])


def _placed(case: Case, own: Array) -> Array:
    """Return what has these at the place of each head, and 0 elsewhere; one stands for all."""
    heads, dim = case.heads_count, case.head_dim
    own = np.array(np.broadcast_to(own, (heads, *own.shape[1:])))
    if own.ndim == 2:
        return own.reshape(heads * dim)
    whole = np.zeros((heads, dim, heads, dim), own.dtype)
    every = np.arange(heads)
    whole[every, :, every] = own
    return whole.reshape(heads * dim, heads * dim)
