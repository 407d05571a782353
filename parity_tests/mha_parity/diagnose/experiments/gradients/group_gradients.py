"""Which query heads the gradient of a shared key head is summed of, where it is not all of them.

A backward pass that goes through the query heads one after another may assign where it should add:
the last head's gradient is left, or the first one's.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.gradients.gradient_remedies import comparison_with
from mha_parity.oracle.eval_orders_vjp import VJP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array

SHARED = {"k": ["dK"], "v": ["dV"], "kv": ["dK", "dV"]}
PLACES = {"last": -1, "first": 0}


def sums_of_one_head() -> Iterator[tuple[Effect, type[VJP]]]:
    """Yield an effect and the backward pass for each array and place of the one head."""
    for letters, (place, number) in product(SHARED, PLACES.items()):
        verb = "is" if len(letters) == 1 else "are"
        named = f"gradient {', '.join(SHARED[letters])} {verb}"
        text = f"{named} that of the {place} query head of each group alone"
        expected = "expected the sum over its query heads"
        effect = Effect(f"{text}, {expected}", comparison_with(SHARED[letters]))
        yield effect, _of_one_head(letters, number)


def _of_one_head(letters: str, number: int) -> type[VJP]:
    class OfOneHead(VJP):
        """All query heads of a group but one leave the gradient as it is."""

        def summed_over_group(self, which: str, gradient: Array) -> Array:
            """Return zeros of the other heads."""
            heads, groups = self.problem.num_heads, self.problem.case.kv_heads_count
            if which not in letters or not groups:
                return gradient
            place = np.arange(heads) % (heads // groups)
            kept = place == number % (heads // groups)
            return np.where(kept[:, None, None], gradient, 0)

    return OfOneHead
