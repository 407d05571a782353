"""Lay the same numbers out in other memory, with NaN on all sides: a read outside them shows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

# Elements of NaN before and after an array; odd, so that no vector of two or more elements of the
# array begins at an aligned address.
GUARD = 67


def copy_in_layout(array: Array, memory: str) -> Array:
    """Return a fresh copy of ``array`` laid out as the feature ``memory`` says.

    Before and after the copy, and between the elements of a sliced one, is NaN (True for masks).
    """
    if memory == "fortran":
        # Not order="F" alone: reversing the axes of a C copy also permutes a 2-D transpose.
        copy = _guarded(array.shape[::-1], array.dtype).T
    elif memory == "sliced":
        copy = _guarded((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)[..., 1::2]
    elif memory == "negative":
        copy = np.flip(_guarded(array.shape, array.dtype))
    else:
        copy = _guarded(array.shape, array.dtype)
    copy[...] = array
    copy.flags.writeable = memory != "readonly"
    return copy


def _guarded(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    """Return an array of NaN (True for masks) inside a larger one of the same."""
    size = math.prod(shape)
    filler = np.nan if dtype.kind in "fV" else True
    return np.full(size + 2 * GUARD, filler, dtype=dtype)[GUARD : GUARD + size].reshape(shape)
