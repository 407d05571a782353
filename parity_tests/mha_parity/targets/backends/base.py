"""Interface of a library of arrays that the conventions use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array


class Library(Protocol):
    """One library's arrays. ``memory`` and ``dtypes`` are the features its arrays can have."""

    name: str
    memory: tuple[str, ...]
    dtypes: tuple[str, ...]

    def from_numpy(self, array: Array) -> Any:
        """Return the library's array of the same numbers, sharing memory where it can."""
        ...

    def to_numpy(self, value: Any) -> Array:
        """Return NumPy's array of the same numbers, sharing memory where it can."""
        ...
