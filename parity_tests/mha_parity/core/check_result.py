"""What one check of one case came to, and where."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mha_parity.case import Case


class Severity(StrEnum):
    """The outcomes of a check, best first."""

    MATCH = "match"
    LESS_ACCURATE = "less accurate"
    INCONCLUSIVE = "inconclusive"
    WRONG = "wrong"
    STRUCTURE = "structure"
    CRASH = "crash"
    TIMEOUT = "timeout"

    @property
    def fails(self) -> bool:
        """Whether a case with this outcome fails."""
        return self in _FAILING


_FAILING = frozenset({Severity.WRONG, Severity.STRUCTURE, Severity.CRASH, Severity.TIMEOUT})


NOWHERE = -1  # for the sample of a weight's gradient, and for the head where heads are mixed


@dataclass(frozen=True, slots=True)
class Place:
    """Where the worst error is; ``row`` is a query position, ``column`` a feature of the output.

    In a gradient they are the row and the column of its array.
    """

    sample: int
    head: int
    row: int
    column: int

    def __str__(self) -> str:
        """Say the place in words; a negative head: the heads are mixed there."""
        sample = f"sample {self.sample}, " if self.sample >= 0 else ""
        head = f"head {self.head}, " if self.head >= 0 else ""
        return f"{sample}{head}row {self.row}, column {self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One check of one case.

    ``check`` is "output", "weights", "gradient of X", "swapped rows", ... ``error`` and ``allowed``
    are in the same unit (absolute); ``times_torch`` is the error in units of torch's own error in
    the same dtype on the same problem, where it was measured. ``detail`` is one sentence for a
    person: what was got, what should be.
    """

    case: Case
    check: str
    severity: Severity
    error: float = 0.0
    allowed: float = 0.0
    where: Place | None = None
    times_torch: float | None = None
    detail: str = ""
