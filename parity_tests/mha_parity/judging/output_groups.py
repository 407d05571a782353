"""Split output and weights into the groups that are judged: heads, or all where mixed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.rng import numpy_dtype
from mha_parity.core.check_result import NO_INDEX, Place
from mha_parity.core.compare import in_unlike_digits
from mha_parity.oracle.error_bound import roundoff, smallest_number

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.oracle.reference import Reference


@dataclass(frozen=True, eq=False)
class JudgedArray:
    """The output, the weights of each head, or their average.

    ``shape`` splits the array into sample, group and the rest; ``axes`` are those of the rest. The
    groups are the heads, or one where the heads are mixed (output projection, average). ``whole``:
    nothing of the reference is changed or left out.
    """

    name: str
    reference: Array
    shape: tuple[int, int, int, int]
    axes: tuple[int, int]
    mixed: bool
    unit: float
    step: float
    whole: bool = True

    @property
    def of_bfloat16(self) -> Array:
        """The most that roundings of the answer to bfloat16 can cost in each group."""
        return np.asarray(2 * roundoff(numpy_dtype("bfloat16")) * self.scale + self.step)

    def found_at_worst(self, found: Array, units: Array) -> str:
        """Say what was got and what should be at the worst place."""
        index = np.unravel_index(int(units.argmax()), units.shape)
        name = "output" if self.name == "output" else "weights"
        shown, wanted = in_unlike_digits(float(found[index]), float(self.reference[index]))
        return f"{name} is {shown} at {self.place(units)}, but should be {wanted}"

    @cached_property
    def finite(self) -> Array:
        """Where the reference is a number."""
        return np.asarray(np.isfinite(self.reference))

    @cached_property
    def scale(self) -> Array:
        """The largest magnitude of the reference in each group."""
        return self.worst(np.where(self.finite, self.reference, 0))

    @cached_property
    def rounding(self) -> Array:
        """Largest error of one rounding of the reference to the dtype, in each group."""
        return self.unit * self.scale + self.step

    def of(self, output: Array, weights: Array) -> Array:
        """Return this quantity of an answer that has output and weights per head."""
        if self.name == "averaged":
            return np.asarray(weights.mean(axis=1))
        return output if self.name == "output" else weights

    def of_sample(self, sample: int) -> JudgedArray:
        """Return the groups of one sample."""
        reference = self.reference[sample : sample + 1]
        return replace(self, reference=reference, shape=(1, *self.shape[1:]))

    def worst(self, array: Array) -> Array:
        """Return the largest magnitude in each group, (N, H) or (N, 1)."""
        grouped = np.abs(array).reshape(self.shape)
        return np.asarray(grouped.max(axis=self.axes, initial=0), dtype=np.float64)

    def broadcast_groups(self, groups: Array) -> Array:
        """Return the value of each group at every element."""
        expanded = np.expand_dims(groups, self.axes)
        return np.asarray(np.broadcast_to(expanded, self.shape).reshape(self.reference.shape))

    def difference(self, answer: Array) -> Array:
        """Return answer - reference; 0 where the reference is no number."""
        with np.errstate(all="ignore"):
            return np.where(self.finite, answer.astype(self.reference.dtype) - self.reference, 0)

    def error(self, answer: Array) -> Array:
        """Return the largest error of each group; not finite where the answer alone is not."""
        return self.worst(self.difference(answer))

    def place(self, units: Array) -> Place:
        """Return where ``units`` (shaped as the reference) is largest; NaN is the largest."""
        index = np.unravel_index(int(np.nan_to_num(units, nan=np.inf).argmax()), units.shape)
        numbers = [int(i) for i in index]
        if self.name == "weights":
            return Place(*numbers)
        sample, row, column = numbers
        if self.mixed:
            return Place(sample, NO_INDEX, row, column)
        width = self.shape[3]
        return Place(sample, column // width, row, column % width)


def judged_array(name: str, problem: Problem, reference: Reference) -> JudgedArray:
    """Return ``output``, ``weights`` (per head) or ``averaged`` of a reference answer."""
    unit, step = roundoff(problem.dtype), smallest_number(problem.dtype)
    samples, heads = problem.case.batch, problem.num_heads
    if name == "output":
        mixed = problem.w_out is not None
        groups = 1 if mixed else heads
        rows, width = reference.output.shape[1:]
        shape = (samples, rows, groups, width // groups)
        return JudgedArray(name, reference.output, shape, (1, 3), mixed, unit, step)
    if name == "averaged":
        queries, keys = reference.averaged.shape[-2:]
        shape = (samples, 1, queries, keys)
        return JudgedArray(
            name, reference.averaged, shape, (2, 3), mixed=True, unit=unit, step=step
        )
    shape = (samples, heads, *problem.weights_shape[2:])
    return JudgedArray(name, reference.weights, shape, (2, 3), mixed=False, unit=unit, step=step)
