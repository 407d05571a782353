"""Arrays of a record as safetensors hold them: long double as two arrays of float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mha_parity.core.arrays import Array

LOW = ".low"  # the name of what float64 leaves of a long double


def stored(name: str, array: Array) -> Iterator[tuple[str, Array]]:
    """Yield the array under its name, and what float64 leaves of it where it is long double."""
    if array.dtype != np.longdouble or array.dtype == np.float64:
        yield name, array
        return
    with np.errstate(all="ignore"):
        high = array.astype(np.float64)
        low = np.where(np.isfinite(high), array - high, 0).astype(np.float64)
    yield from ((name, high), (name + LOW, low))


def restored(name: str, arrays: Mapping[str, Array]) -> Array:
    """Return the array of a name as it was."""
    array = arrays[name]
    low = arrays.get(name + LOW)
    return array if low is None else array.astype(np.longdouble) + low
