"""Query, key and value, or key and value, in one argument: an array of them or a tuple."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem

ROLES = {"q": "query", "k": "key", "v": "value"}
WHOLE = "pnlhd"  # parts, samples, rows, heads and their width: the axes before they are laid
# The groups of axes that an array has, by layout and arrangement of what is returned; () is a
# tuple of arrays.
AXES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("batch_first", "rows_of_heads"): (
        "", "n l p h d", "p n l h d", "n p l h d", "n l h p d", "n l h pd",
    ),
    ("batch_first", "heads"): ("", "p n h l d", "n p h l d", "n h p l d", "n h l pd"),
    ("batch_first", "heads_first"): ("", "p h n l d"),
    ("batch_first", "rows"): (
        "", "n l phd", "n l hpd", "n l hdp", "n l p hd", "p n l hd", "n p l hd",
    ),
    ("batch_first", "channels"): ("", "n phd l", "n hpd l", "n hdp l", "n p hd l"),
    ("sequence_first", "rows"): ("", "l n phd", "l n hpd"),
    ("unbatched", "rows"): ("", "l phd", "l hpd"),
}  # fmt: skip
CONTAINERS = {"tuple": tuple, "list": list}
NOT_CROSS = "its queries and keys lie in one array"


@dataclass(frozen=True, slots=True)
class PackedInput:
    """Inputs of one parameter: ``parts`` of q, k and v, by the groups of axes of their array.

    ``container`` is "array", or "tuple" or "list", of one array for each part. ``named``: the
    parameter's name says which parts, in their order.
    """

    parameter: str
    parts: tuple[str, ...]
    axes: tuple[str, ...] = ()
    container: str = "array"
    named: bool = True

    @property
    def roles(self) -> tuple[str, ...]:
        """Which of query, key and value it holds, in order."""
        return tuple(ROLES[part] for part in self.parts)

    @property
    def is_square(self) -> bool:
        """Whether there are as many keys as queries: one array holds both."""
        return self.container == "array" and "q" in self.parts

    @property
    def not_cross(self) -> str:
        """Why keys of another number than the queries are no input; "" where they are."""
        return NOT_CROSS if self.is_square else ""

    def pack(self, problem: Problem) -> Array:
        """Return the parts of a problem as one array."""
        rows = [getattr(problem, role) for role in self.roles]
        sizes = self._sizes(problem)
        heads = (sizes["h"], sizes["d"])
        whole = np.stack([each.reshape(*each.shape[:2], *heads) for each in rows])
        order = [WHOLE.index(axis) for axis in "".join(self.axes)]
        if problem.case.layout == "unbatched":
            order = [WHOLE.index("n"), *(axis for axis in order if WHOLE[axis] != "n")]
            whole = whole.transpose(order)[0]
        else:
            whole = whole.transpose(order)
        return np.ascontiguousarray(whole.reshape(self._shape(problem)))

    def unpack(self, problem: Problem, array: Array) -> dict[str, Array]:
        """Return the arrays (N, L, E) that an array of them holds, a gradient, say, by role."""
        sizes = self._sizes(problem)
        order = [axis for axis in "".join(self.axes) if axis in sizes]
        split = array.reshape([sizes[axis] for axis in order])
        if "n" not in order:
            split, order = split[None], ["n", *order]
        whole = split.transpose([order.index(axis) for axis in WHOLE])
        return {
            role: whole[place].reshape(getattr(problem, role).shape)
            for place, role in enumerate(self.roles)
        }

    def _sizes(self, problem: Problem) -> dict[str, int]:
        """Return the size of every axis, of the samples' only where there is a batch."""
        samples, length, width = getattr(problem, self.roles[0]).shape
        heads = problem.num_heads if "q" in self.parts else problem.num_kv_heads
        sizes = {"p": len(self.parts), "l": length, "h": heads, "d": width // heads}
        return sizes if problem.case.layout == "unbatched" else sizes | {"n": samples}

    def _shape(self, problem: Problem) -> list[int]:
        sizes = self._sizes(problem)
        groups = [[sizes[axis] for axis in group if axis in sizes] for group in self.axes]
        return [int(np.prod(group)) for group in groups if group]

    def __str__(self) -> str:
        """Say what the parameter gets."""
        held = f"{', '.join(self.roles[:-1])} and {self.roles[-1]}"
        if self.container != "array":
            return f"`{self.parameter}` a {self.container} of {held}"
        length, many = "L" if "q" in self.parts else "S", str(len(self.parts))
        letters = {"p": many, "n": "N", "l": length, "h": "H", "d": "D"}
        shown = ["·".join(letters[axis] for axis in group) for group in self.axes]
        return f"`{self.parameter}` {held} in one array ({', '.join(shown)})"
