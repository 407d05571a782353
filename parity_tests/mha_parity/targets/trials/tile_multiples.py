"""Targets that take lengths alone which are multiples of a number, and raise at others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.core.candidate import ADAPTER, TargetError
from mha_parity.targets.interpretations.try_interpretations import MIN_CORRELATION, SMALL, Search
from mha_parity.targets.trials.refusals import FEW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.targets.interpretations.try_interpretations import Ask, InterpretationResult

MULTIPLES = (2, 4, 8, 16, 64)  # of lengths: of tiles that a kernel does not cut


class OfMultiplesError(TargetError):
    """A target takes lengths alone that are multiples of a number; ``raised`` at others."""

    def __init__(self, name: str, how: str, multiple: int, raised: str) -> None:
        super().__init__(
            f"got {name}, but as {how} it comes near attention at lengths that are multiples of "
            f"{multiple}, and not at L = {SMALL.queries}, where it {raised}; pad its inputs: "
            f"{ADAPTER}."
        )
        self.multiple, self.raised = multiple, raised


def refuse_lengths(
    ask: Ask, name: str, trials: Sequence[InterpretationResult], dtype: str, *, near: bool
) -> None:
    """Refuse what raises at small odd lengths and computes attention at multiples of a number.

    ``near``: or comes near it, where no other way to call it does.

    Raises
    ------
    OfMultiplesError
        That is so; the sentence has what it raised.

    """
    raised = [each for each in trials if each.raised][:FEW]
    for multiple in MULTIPLES if raised else ():
        base = SMALL.replace(queries=3 * multiple, keys=5 * multiple)
        best = Search(ask, dtype, base=base).run(each.interpretation for each in raised)
        if best is not None and (best.exact or (near and best.correlation >= MIN_CORRELATION)):
            how = best.interpretation
            first = next(each.missed for each in raised if each.interpretation is how)
            raise OfMultiplesError(name, str(how), multiple, first)
