"""Nested lists of Python's numbers, as code without any library has its matrices."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mha_parity.core.arrays import Array


class ListArrays:
    """Python's floats, which are float64; numbers that come back as whole ones are floats too."""

    name = "a Python list"
    memory: tuple[str, ...] = ("c",)
    dtypes: tuple[str, ...] = ("float64",)

    def from_numpy(self, array: Array) -> Any:
        """Return the numbers in nested lists."""
        return array.tolist()

    def to_numpy(self, value: Any) -> Array:
        """Return the array of nested lists of equal lengths."""
        return np.asarray(value, dtype=np.float64)


def of_lists(
    function: Callable[..., Any], handed: Sequence[tuple[Array, list[Any]]]
) -> Callable[..., Any]:
    """Return a function of lists that returns arrays.

    ``handed`` are the lists that it gets, and the arrays of them: what it writes into a list is
    written into its array, where whoever watches the call looks.
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        for array, given in handed:
            after = _array(given)
            array[...] = after if after is not None and after.shape == array.shape else np.nan
        return _with_arrays(result)

    return called


def _with_arrays(value: Any) -> Any:
    """Return a result with arrays in the place of nested lists of numbers."""
    if isinstance(value, dict):
        return {name: _with_arrays(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_with_arrays, value))
    if not isinstance(value, list):
        return value
    array = _array(value)
    return array if array is not None else [_with_arrays(each) for each in value]


def _array(value: list[Any]) -> Array | None:
    """Return the array of nested lists of numbers; None where they are ragged, or hold others."""
    try:
        array = np.asarray(value)
    except ValueError:
        return None
    return array.astype(np.float64) if array.dtype.kind in "biuf" and array.ndim else None
