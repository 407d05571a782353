"""The weights that a layer has already, under the names by which a problem has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnWeights:
    """The weights of one layer.

    ``features`` maps axes of a case to the values that the layer was built with, ``sizes`` the
    fields of its sizes. ``places`` maps the names of the layer's tensors to those of ``arrays``;
    ``left_over`` are its tensors that are no weights of attention.
    """

    arrays: dict[str, Array]
    features: dict[str, str]
    sizes: dict[str, int]
    places: dict[str, tuple[str, ...]]
    left_over: tuple[str, ...] = ()

    def case(self, case: Case) -> Case:
        """Return the case in the sizes and with the features of the layer."""
        return case.replace(**self.sizes, **self.features)

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

    @property
    def sentence(self) -> str:
        """Say which tensor went where, and what was left over."""
        if not self.places:
            sizes = ", ".join(f"{name} {size}" for name, size in self.sizes.items())
            return f"judged at the sizes that it declares: {sizes}"
        went = ", ".join(f"{name} as {' '.join(parts)}" for name, parts in self.places.items())
        left = f"; left over: {', '.join(self.left_over)}" if self.left_over else ""
        return f"judged with its own weights: {went}{left}"
