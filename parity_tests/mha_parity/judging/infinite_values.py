"""Results determined where a value is infinite, whatever the order of evaluation.

o_ic = sum_j p_ij v_jc with v_jc infinite at one key j, in a layer in all channels of that key:

- where no such key is, a number: that of the problem without infinity;
- where row i sees key j and p_ij cannot underflow, the same infinity. Where p_ij can underflow,
  0 times infinity is NaN: infinite or NaN;
- where key j is hidden from row i, p_ij = 0: NaN where the product is computed, as on torch's
  paths, or the number, where a kernel skips the key or hides its value too.

A layer that multiplies by an identity ``out_proj`` spreads NaN over the whole row, one without it
does not; a general ``out_proj`` sums infinities of both signs. Both leave the row without numbers
where a head sees the key, and that alone is demanded of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.arrays import merge_heads
from mha_parity.core.compare import as_float64
from mha_parity.oracle.error_bound import bound, smallest_number
from mha_parity.oracle.reference import reference_answer

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.judging.output_groups import JudgedArray
    from mha_parity.oracle.reference import Reference


def has_infinite_values(problem: Problem) -> bool:
    """Return whether infinity, and no NaN, is in the values alone."""
    if np.isfinite(as_float64(problem.value)).all() or np.isnan(as_float64(problem.value)).any():
        return False
    return all(np.isfinite(as_float64(each)).all() for each in (problem.query, problem.key))


def without_infinity(problem: Problem) -> tuple[Problem, Reference]:
    """Return the problem with 0 for each infinite value, and its reference."""
    finite = np.isfinite(as_float64(problem.value))
    value = np.where(finite, problem.value, 0).astype(problem.dtype)
    clean = problem.replace(value=value)
    return clean, reference_answer(clean)


class Determined:
    """The elements of output and weights that are determined, and those that vary by order."""

    def __init__(self, problem: Problem, reference: Reference) -> None:
        """Find which rows see an infinite value, and which have one hidden."""
        self.problem, self.reference = problem, reference
        self.clean = without_infinity(problem)
        infinite = (~np.isfinite(reference.v)).astype(np.float64)
        hidden = np.broadcast_to(problem.hidden(), problem.weights_shape)
        least = reference.weights - bound(*self.clean).weights
        sure = ~hidden & (least > smallest_number(problem.dtype))
        self.sees = (~hidden).astype(np.float64) @ infinite > 0
        self.hides = hidden.astype(np.float64) @ infinite > 0
        self.sure = sure.astype(np.float64) @ infinite > 0

    def expected(self, judged: JudgedArray) -> Array:
        """Return the quantity with the number that a row which has the key hidden may have."""
        if judged.name != "output":
            return judged.reference
        clean = self.clean[1]
        if judged.mixed:
            return np.where(_rows(self.sees), np.nan, clean.output)
        return merge_heads(np.where(self.sees, self.reference.heads, clean.heads))

    def vary(self, judged: JudgedArray, found: Array) -> Array:
        """Return where NaN or infinity was found that not every order has, and some have."""
        if judged.name != "output":
            return np.zeros(found.shape, dtype=bool)
        numbers = as_float64(found)
        unsure = self.sees & ~self.sure
        nan, infinite = merge_heads(self.hides | unsure), merge_heads(unsure)
        if self.problem.case.form == "mha":
            nan = nan | _rows(self.hides | self.sees)
        if judged.mixed:
            infinite = _rows(self.sees)
        return np.asarray((nan & np.isnan(numbers)) | (infinite & np.isinf(numbers)))


def _rows(heads: Array) -> Array:
    """Return the rows (N, L, 1) in which an element of any head (N, H, L, Dv) is marked."""
    return np.asarray(heads.any(axis=(1, 3)))[..., None]


def may_overflow(
    problem: Problem, reference: Reference, judged: JudgedArray, found: Array
) -> Array:
    """Return where rounding can carry a right output past the range, and it is infinite."""
    if judged.name != "output":
        return np.zeros(found.shape, dtype=bool)
    numbers, expected = as_float64(found), as_float64(judged.reference)
    most = np.abs(expected) + bound(problem, reference).output
    beyond = ~np.isfinite(most.astype(found.dtype).astype(np.float64))
    return np.asarray(beyond & np.isinf(numbers) & (np.sign(numbers) == np.sign(expected)))
