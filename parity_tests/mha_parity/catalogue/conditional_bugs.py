"""Planted bugs: attentions that are wrong only where a condition on the case holds.

Each is right on every other case, so that the run must draw a case with the condition to see it.
They measure what the drawn cases leave out; they are no hypotheses of the diagnosis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mha_parity.catalogue.plain_attention import Attention, answer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem


class LastRowScaled(Attention):
    """Scale the last query row of the last head by 9/8."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return P v with the last row of the last head scaled."""
        heads = super().apply_weights(weights, v)
        heads[:, -1, -1] *= 1.125
        return heads


def is_not_empty(case: Case) -> bool:
    """Return whether a case has samples, queries and keys."""
    return 0 not in (case.batch, case.queries, case.keys)


@dataclass(frozen=True, eq=False, kw_only=True)
class Planted:
    """One planted bug: ``kind`` computes the answer where ``holds`` is true of the case.

    ``condition`` says in the symbols N, L, S, H, D, E where that is; ``family`` groups conditions.
    """

    condition: str
    family: str
    holds: Callable[[Case], bool]
    kind: type[Attention] = LastRowScaled

    def attend(self, problem: Problem) -> Answer:
        """Return the wrong answer where the condition holds, else the right one."""
        return answer_of(self.kind if self.holds(problem.case) else Attention, problem)
