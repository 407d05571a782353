"""The kind of an answer: an array, of the right shape and dtype."""

from __future__ import annotations

import numpy as np


def structure_error(
    check: str, shape: tuple[int, ...], dtype: np.dtype[np.generic], found: object
) -> str:
    """Return what is wrong with the kind of an answer, or an empty sentence."""
    if found is None:
        return f"{check} is missing, but an array of shape {shape} should be returned."
    if not isinstance(found, np.ndarray):
        return f"{check} is of type {type(found).__name__}, but should be an array."
    if found.shape != shape:
        return f"{check} has the shape {found.shape}, but should have {shape}."
    if found.dtype != dtype:
        return f"{check} has the dtype {found.dtype}, but should have {dtype} as the inputs do."
    return ""
