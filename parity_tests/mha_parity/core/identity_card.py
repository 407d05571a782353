"""Identity card of an attention: the function that it computes, as experiments measured it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.verdict import Diagnosis


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResult:
    """One experiment: what it measured, as a sentence and as a number with its unit.

    ``as_torch`` says whether that is what torch computes, None where it could not be measured.
    ``clause`` is what the card's first sentence says of it, "" for nothing.
    """

    experiment: str
    sentence: str
    value: float | None = None
    unit: str = ""
    as_torch: bool | None = True
    clause: str = ""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TransferPoints:
    """Logarithms of weights (``found``) over true scores, both relative to a key of the same row.

    torch's points have ``found`` equal to ``scores``.
    """

    scores: Array
    found: Array


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class InfluenceMatrix:
    """Which parts of the output (columns) a part of the input (row) reaches, and should reach."""

    title: str
    rows: str
    columns: str
    reached: Array
    expected: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class IdentityCard:
    """Results of experiments on one target: a sentence, a line for each, and the departures."""

    target: str
    convention: str
    sentence: str
    measures: tuple[ExperimentResult, ...]
    causes: tuple[Diagnosis, ...] = ()
    transfer: TransferPoints | None = None
    influence: tuple[InfluenceMatrix, ...] = ()
    calls: int = 0
    seconds: float = 0.0
    environment: Mapping[str, str]

    @property
    def as_torch(self) -> bool:
        """Whether no experiment found a departure from torch."""
        return not self.causes and all(each.as_torch is not False for each in self.measures)
