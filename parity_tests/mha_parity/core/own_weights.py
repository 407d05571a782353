"""The weights that a layer has already, under the names by which a problem has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem

_NAMES = {"heads_count": "num_heads", "kv_heads_count": "num_kv_heads"}
WEIGHTS = ("w_q", "w_k", "w_v", "w_out", "b_q", "b_k", "b_v", "b_out", "bias_k", "bias_v")


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnWeights:
    """The weights of one layer.

    ``features`` maps axes of a case to the values that the layer was built with, ``sizes`` the
    fields of its sizes. ``places`` maps the names of the layer's tensors to those of ``arrays``;
    ``left_over`` are its tensors that are no weights of attention. ``built``: they are those of an
    object, which is asked itself, or of whose copies others are; else its class builds others. It
    is asked at most ``longest`` queries or keys (0: any number), since it raises ``beyond`` these,
    and of lengths that are multiples of ``multiple`` alone (0: any), where it raises at others.
    """

    arrays: dict[str, Array]
    features: dict[str, str]
    sizes: dict[str, int]
    places: dict[str, tuple[str, ...]]
    left_over: tuple[str, ...] = ()
    built: bool = False
    longest: int = 0
    beyond: str = ""
    multiple: int = 0

    @property
    def trial_multiple(self) -> int:
        """Of what lengths of small calls are multiples: of one tile, axes are taken for others."""
        return 3 * self.multiple or 1

    def in_its_sizes(self, case: Case) -> Case:
        """Return the case in the sizes of the layer."""
        return case.replace(**self.sizes).in_multiples(self.multiple or 1)

    def case(self, case: Case) -> Case:
        """Return the case in the sizes and with the features of the layer, and no longer than it.

        Of more queries or keys than the layer takes, the case has as many as that.
        """
        queries, keys = self.length(case.queries), self.length(case.keys)
        return self.in_its_sizes(case.replace(**self.features, queries=queries, keys=keys))

    def length(self, length: int) -> int:
        """Return a number of queries or keys, the largest that the layer takes where it is more."""
        return min(length, self.longest) if self.longest else length

    @property
    def limit(self) -> str:
        """Say which lengths are not offered, and why; "" where all are."""
        if self.multiple:
            return f"not offered: lengths that are no multiples of {self.multiple} ({self.beyond})"
        if not self.longest:
            return ""
        return f"not offered: more than {self.longest} queries or keys ({self.beyond})"

    def problem(self, problem: Problem) -> Problem:
        """Return the problem with these weights where its case is one of the layer's.

        Elsewhere biases that this layer lacks are 0: one of its class has none, either.
        """
        if self.case(problem.case) == problem.case:
            return problem.replace(**self.arrays)
        given = {name: getattr(problem, name) for name in self.arrays if name.startswith("b_")}
        lacks = {name for name in given if not self.arrays[name].any()}
        return problem.replace(
            **{n: np.zeros_like(a) for n, a in given.items() if n in lacks and a is not None}
        )

    def are_of(self, problem: Problem) -> bool:
        """Return whether the problem has these weights, and the sizes."""
        if any(getattr(problem.case, name) != size for name, size in self.sizes.items()):
            return False
        given = ((array, getattr(problem, name)) for name, array in self.arrays.items())
        return all(other is not None and np.array_equal(own, other) for own, other in given)

    def other_size(self, problem: Problem) -> str:
        """Say which size of a problem is not the layer's; "" where none is."""
        case = problem.case
        if self.multiple and (case.queries % self.multiple or case.keys % self.multiple):
            return f"it takes lengths that are multiples of {self.multiple}"
        others = (n for n, size in self.sizes.items() if getattr(case, n) != size)
        return next((f"it is built with {name} {self.sizes[name]}" for name in others), "")

    def unlike(self, problem: Problem) -> str:
        """Say what a problem has that no layer of these shapes can hold; "" where one can."""
        case = problem.case
        if reason := self.other_size(problem):
            return reason
        for axis in ("projection", "bias_kv", "zero_attn", "dtype"):
            if self.features.get(axis, getattr(case, axis)) != getattr(case, axis):
                return f"it is built with {axis}={self.features[axis]}"
        held = {part for parts in self.places.values() for part in parts}
        for name in (each for each in WEIGHTS if each not in held):
            given = getattr(problem, name)
            if given is not None and not _is_neutral(given):
                return f"it has no {name}"
        return ""

    @property
    def sentence(self) -> str:
        """Say which tensor went where, and what was left over."""
        if not self.places and not self.sizes:
            return ""
        if not self.places:
            said = (f"{_NAMES.get(name, name)} {size}" for name, size in self.sizes.items() if size)
            return f"judged at its own sizes alone: {', '.join(said)}"
        went = ", ".join(f"{name} as {' '.join(parts)}" for name, parts in self.places.items())
        left = f"; left over: {', '.join(self.left_over)}" if self.left_over else ""
        return f"judged with its own weights: {went}{left}"


def _is_neutral(array: Array) -> bool:
    """Return whether a matrix is the identity, or a bias 0: as if it were not there."""
    neutral = np.eye(*array.shape) if array.ndim == 2 else np.zeros(array.shape)
    return np.array_equal(array, neutral)
