"""The same numbers in other memory: what a candidate that reads raw buffers gets wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mha_parity.values import Array


def present(array: Array, memory: str) -> Array:
    """Return a fresh copy of ``array`` laid out as the feature ``memory`` says.

    What lies between the elements of a sliced copy is NaN (True for masks): reading it shows.
    """
    if memory == "fortran":
        # Not order="F" alone: reversing the axes of a C copy also permutes a 2-D transpose.
        return np.asfortranarray(array.copy())
    if memory == "sliced":
        filler = np.nan if array.dtype.kind in "fV" else True
        wide = np.full((*array.shape[:-1], 2 * array.shape[-1] + 1), filler, dtype=array.dtype)
        wide[..., 1::2] = array
        return wide[..., 1::2]
    if memory == "negative":
        turned = np.flip(array).copy()
        return np.flip(turned)
    copy = array.copy()
    copy.flags.writeable = memory != "readonly"
    return copy
