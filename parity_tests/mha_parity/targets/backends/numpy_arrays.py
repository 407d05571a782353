"""NumPy's own arrays: handed on as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.core.features import AXES

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array


class NumpyArrays:
    """All memory layouts and, by ml_dtypes, all dtypes."""

    name = "numpy"
    memory: tuple[str, ...] = tuple(AXES["memory"])
    dtypes: tuple[str, ...] = tuple(AXES["dtype"])

    def from_numpy(self, array: Array) -> Array:
        """Return ``array`` itself."""
        return array

    def to_numpy(self, value: Array) -> Array:
        """Return ``value`` itself."""
        return value
