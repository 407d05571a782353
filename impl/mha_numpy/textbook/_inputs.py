"""Arguments at the border of the textbook forms: real arrays of fitting shapes, or one sentence."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy.dtypes import FLOAT64, to_array, to_floating, working_dtype

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray


def real_arrays(axes: dict[str, str], **arrays: ArrayLike) -> tuple[list[NDArray[Any]], DTypeLike]:
    """Return the arrays in one dtype to compute in, and the dtype to round results to.

    `axes` gives each argument's axes by letters: {"X": "L E"} asks for two.
    """
    found = {name: _floating(name, array) for name, array in arrays.items()}
    for name, array in found.items():
        letters = axes[name].split()
        if array.ndim != len(letters):
            raise ValueError(
                f"`{name}` has shape {array.shape}, but should be ({', '.join(letters)}), "
                f"an array of {len(letters)} axes; reshape it."
            )
    rounded = np.result_type(*found.values())
    computed = working_dtype(rounded)
    return [array.astype(computed, copy=False) for array in found.values()], rounded


def _floating(name: str, value: ArrayLike) -> NDArray[Any]:
    """Return an array of a supported dtype; integers, which textbooks write, become float64."""
    array = to_array(value, name)
    return to_floating(array.astype(FLOAT64) if array.dtype.kind in "iu" else array, name)


def require_size(name: str, array: NDArray[Any], axis: int, size: int, meaning: str) -> None:
    """Raise unless `axis` of the array has this size, whose meaning is named in the message."""
    if array.shape[axis] != size:
        raise ValueError(
            f"`{name}` has shape {array.shape}, but the size of axis {axis % array.ndim} should be "
            f"{size}, {meaning}; check the order of the arguments, or transpose it."
        )


def require_heads(name: str, num_heads: int, width: int, meaning: str) -> int:
    """Return the number of heads as an int; raise unless it divides the width."""
    try:
        heads = operator.index(num_heads)
    except TypeError:
        raise TypeError(
            f"`{name}` is {num_heads!r}, but should be an integer; pass how many heads there are."
        ) from None
    if heads < 1 or width < 1 or width % heads:
        raise ValueError(
            f"`{name}` is {heads}, but should be at least 1 and divide {width}, {meaning}; "
            "heads share the width equally."
        )
    return heads
