"""Numbers with a bound on their error: each operation carries both on (see ``bound``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.oracle.error_bound import ErrorModel


@dataclass(frozen=True, eq=False, slots=True)
class Bounded:
    """``value`` in the reference's dtype; ``error`` bounds the rounding error."""

    value: Array
    error: Array
    machine: ErrorModel

    @property
    def max_magnitude(self) -> Array:
        """The largest magnitude a right program can have."""
        return np.asarray(np.abs(self.value).astype(np.float64) + self.error)

    @property
    def size(self) -> Array:
        """The magnitude of the value."""
        return np.abs(self.value).astype(np.float64)

    def exact(self, value: Array) -> Bounded:
        """Return an input: it is what it is, but for what a product may read as 0."""
        lost = np.where(np.abs(value) < self.machine.step, np.abs(value).astype(np.float64), 0)
        return Bounded(value.astype(self.value.dtype), lost, self.machine)

    def _made(
        self, value: Array, carried: Array, max_magnitude: Array, terms: int, stored: int
    ) -> Bounded:
        made = self.machine.error_factor(terms, stored) * max_magnitude + self.machine.step
        return Bounded(value, np.asarray(carried + made), self.machine)

    def __matmul__(self, other: Bounded) -> Bounded:
        """Return the matrix product, summed in any order."""
        carried = self.error @ other.max_magnitude + self.size @ other.error
        max_magnitude = self.max_magnitude @ other.max_magnitude
        return self._made(self.value @ other.value, carried, max_magnitude, self.value.shape[-1], 2)

    def __mul__(self, other: Bounded) -> Bounded:
        """Return the product element by element."""
        carried = self.error * other.max_magnitude + self.size * other.error
        return self._made(
            self.value * other.value, carried, self.max_magnitude * other.max_magnitude, 0, 1
        )

    def __sub__(self, other: Bounded) -> Bounded:
        """Return the difference."""
        max_magnitude = self.max_magnitude + other.max_magnitude
        return self._made(self.value - other.value, self.error + other.error, max_magnitude, 0, 1)

    def scaled(self, factor: float, roundings: int) -> Bounded:
        """Return the product with a number that is itself formed with roundings."""
        exact = self.value.dtype.type(factor)
        by = abs(factor)
        return self._made(
            self.value * exact, self.error * by, self.max_magnitude * by, 0, roundings
        )

    def total(self, *axes: int) -> Bounded:
        """Return the sum over some axes, in any order."""
        terms = math.prod(self.value.shape[axis] for axis in axes)
        value, error = self.value.sum(axis=axes), self.error.sum(axis=axes)
        return self._made(value, error, self.max_magnitude.sum(axis=axes), max(terms - 1, 0), 1)

    def shaped(self, change: Callable[[Array], Array]) -> Bounded:
        """Return the same numbers in another shape."""
        return Bounded(change(self.value), change(self.error), self.machine)

    def with_larger_error(self, other: Bounded) -> Bounded:
        """Return the same value where a right program may compute it in either way."""
        return Bounded(self.value, np.maximum(self.error, other.error), self.machine)
