"""Where a function returns the log-sum-exp of each row beside its output.

log sum_s exp(score_s), natural, over the keys s that the row sees, (N, H, L)
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.calls.canonical_layout import without_names

if TYPE_CHECKING:
    import inspect
    from collections.abc import Iterable

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem

BASE = 2.0  # the other base that one may be documented to have
SETTLED = "log-sum-exp"  # the name of what is settled of it


NAME = re.compile(r"(^|_)(lse\d?|log_?sum_?exp)(_|$)", re.IGNORECASE)


def log_sum_exp_switches(named: Iterable[inspect.Parameter], seed: int) -> dict[str, bool]:
    """Return the switches of a call that return it, off by default: on where the seed is odd."""
    return {
        each.name: True
        for each in named
        if seed % 2 and each.default is False and NAME.search(each.name)
    }


class LogSumExp(NamedTuple):
    """Where it stands in what is returned, its axes ("1": one more element), and its base."""

    place: int
    axes: str
    base: float

    def read(self, problem: Problem, result: Any) -> Array | None:
        """Return the natural one of a result, (N, H, L); None where none of its shape is returned.

        Integers and booleans are none.
        """
        several = without_names(result)
        if not isinstance(several, tuple | list) or len(several) <= self.place:
            return None
        with suppress(CandidateError):
            array, sizes = to_numpy(several[self.place], "the log-sum-exp"), row_sizes(problem)
            unbatched = [self.axes.replace("N", "")] if problem.case.layout == "unbatched" else []
            ways = (w for w in (self.axes, *unbatched) if array.shape == axes_shape(w, sizes))
            axes = next(ways, None)
            if axes is None or not is_floating(array):
                return None
            order = axes.replace("1", "")
            kept = array.reshape(axes_shape(order, sizes))
            whole = kept.transpose([order.index(axis) for axis in "NHL" if axis in order])
            factor = 1 if self.base == math.e else math.log(self.base)
            return np.asarray(whole.reshape(axes_shape("NHL", sizes)) * factor, dtype=array.dtype)
        return None

    @property
    def settled(self) -> tuple[str, str]:
        """Name and text by which another process finds it too."""
        return SETTLED, " ".join(map(str, self))

    @classmethod
    def of(cls, found: tuple[tuple[str, str], ...]) -> LogSumExp | None:
        """Return it from what another process settled, None where that found none."""
        for name, text in found:
            if name == SETTLED:
                place, axes, base = text.split()
                return cls(int(place), axes, float(base))
        return None


def is_floating(array: Array) -> bool:
    """Return whether numbers are floats, those of bfloat16 too."""
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def axes_shape(axes: str, sizes: dict[str, int]) -> tuple[int, ...]:
    """Return the shape of an array with these axes."""
    return tuple(sizes[axis] for axis in axes)


def row_sizes(problem: Problem) -> dict[str, int]:
    """Return the sizes of a problem by axis: samples, heads, rows, and one element."""
    samples, heads, length, _ = problem.weights_shape
    return {"N": samples, "H": heads, "L": length, "1": 1}
