"""Where the gradients of the heads go, and what every engine does alike on the way there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from mha_numpy.dtypes import Array, require_same, to_floating

if TYPE_CHECKING:
    from mha_numpy.masks import Masking


class HeadGradients(NamedTuple):
    """Arrays to be written: q, k, v shaped as those, in any memory order, and the float masks.

    `bias` holds zeros of the shape that each float mask came in with, and is added to.
    """

    q: Array
    k: Array
    v: Array
    bias: tuple[Array, ...]


Pull: TypeAlias = Callable[["Array", "Array | None", HeadGradients], None]
"""(dO (N, H, L, Dv), cotangent of the weights that broadcasts to (N, H, L, S) or None, targets)."""


def zeros_for(masking: Masking, dtype: np.dtype[Any]) -> tuple[Array, ...]:
    """Return zeros to add the gradients of the float masks to."""
    return tuple(np.zeros(bias.shape, dtype) for bias in masking.bias)


def to_cotangent(
    value: object, name: str, of: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Array:
    """Return a cotangent as an array, or raise unless it has the shape and dtype of a result."""
    array = to_floating(value, name)
    if array.shape != shape:
        raise ValueError(
            f"`{name}` has shape {array.shape}, but should have that of the {of}, {shape}; "
            f"pass the gradient of a number with respect to the {of}."
        )
    require_same(dtype, f"the dtype of the {of},", **{name: array})
    return array


def sum_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Return the sum of an array over all axes along which `shape` was broadcast to its shape."""
    extra = array.ndim - len(shape)
    sizes = enumerate(array.shape)
    axes = tuple(i for i, size in sizes if i < extra or size != shape[i - extra])
    return np.add.reduce(array, axis=axes).reshape(shape) if axes else array
