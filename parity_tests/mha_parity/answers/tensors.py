"""Arrays of a record as safetensors hold them: long double as two arrays of float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array

LOW = ".low"  # the name of what float64 leaves of a long double


def split_long_double(name: str, array: Array) -> Iterator[tuple[str, Array]]:
    """Yield the array under its name, and what float64 leaves of it where it is long double."""
    if array.dtype != np.longdouble or array.dtype == np.float64:
        yield name, array
        return
    with np.errstate(all="ignore"):
        high = array.astype(np.float64)
        low = np.where(np.isfinite(high), array - high, 0).astype(np.float64)
    yield from ((name, high), (name + LOW, low))


def join_long_double(name: str, arrays: Mapping[str, Array]) -> Array:
    """Return a copy of the array of a name, as it was."""
    array = arrays[name]
    low = arrays.get(name + LOW)
    return array.copy() if low is None else array.astype(np.longdouble) + low


class Restored(Mapping[str, "Array"]):
    """Arrays under other names than those of a file, each restored when it is asked for."""

    def __init__(self, names: Mapping[str, str], arrays: Mapping[str, Array]) -> None:
        """Take the names in the file by those here."""
        self._names, self._arrays = names, arrays

    def __getitem__(self, name: str) -> Array:
        """Return a copy of an array."""
        return join_long_double(self._names[name], self._arrays)

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return how many arrays there are."""
        return len(self._names)
