"""The result of one check on one case, with its place."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mha_parity.core.case import Case


class Severity(StrEnum):
    """The outcomes of a check, best first.

    ``structure``: the answer has another shape, dtype or kind. ``broken``: what a check holds of
    calls, say that one leaves no state to the next, does not hold.
    """

    MATCH = "match"
    LESS_ACCURATE = "less accurate"
    INCONCLUSIVE = "inconclusive"
    WRONG = "wrong"
    STRUCTURE = "structure"
    BROKEN = "broken"
    CRASH = "crash"
    TIMEOUT = "timeout"

    @property
    def fails(self) -> bool:
        """Whether a case with this outcome fails."""
        return self in _FAILING


_FAILING = frozenset(Severity) - {Severity.MATCH, Severity.LESS_ACCURATE, Severity.INCONCLUSIVE}
_BY_SENTENCE = frozenset({Severity.CRASH, Severity.STRUCTURE, Severity.BROKEN})


MASKED_ROWS = "fully masked rows"  # the check of rows that see no key
PADDED_QUERIES = "rows of padded queries"  # the check of what no one reads
WITHOUT_KEYS = "rows without any key (S = 0)"  # in its sentence: torch has 0 there, and not NaN
LOG_SUM_EXP = "log-sum-exp"  # the check of what comes with the output, one number a row
SYSTEMATIC = "systematic error"  # the check over the run that no single case fails
NO_INDEX = -1  # for the sample of a weight's gradient, and for the head where heads are mixed


@dataclass(frozen=True, slots=True)
class Place:
    """Where the worst error is; ``row`` is a query position, ``column`` a feature of the output.

    In a gradient they are the row and the column of its array. A log-sum-exp has no columns.
    """

    sample: int
    head: int
    row: int
    column: int

    def __str__(self) -> str:
        """Say the place in words, without what is negative."""
        sample = f"sample {self.sample}, " if self.sample >= 0 else ""
        head = f"head {self.head}, " if self.head >= 0 else ""
        column = f", column {self.column}" if self.column >= 0 else ""
        return f"{sample}{head}row {self.row}{column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check of one case.

    ``check`` is "output", "weights", "gradient of X", "permutation equivariance", ...
    ``error`` and ``allowed`` are in the same unit (absolute); ``times_torch`` is the error in
    units of torch's own error in the same dtype on the same problem, where it was measured.
    ``improbable``: less accurate than roundings that scatter around 0 make it once in 1e9 cases.
    ``bound`` is the rounding-error bound in that unit, where a plot wants it.
    ``detail`` is one sentence for a person: what was got, what should be.
    """

    case: Case
    check: str
    severity: Severity
    error: float = 0.0
    allowed: float = 0.0
    where: Place | None = None
    times_torch: float | None = None
    improbable: bool = False
    bound: float | None = None
    detail: str = ""

    @property
    def kind(self) -> tuple[str, Severity, str]:
        """Check, severity, and what failed: the type of an exception, shape, dtype, a NaN.

        Of a crash, of an answer of the wrong structure and of what is broken it is the sentence up
        to its first number, since these change with the sizes of the case.
        """
        if self.severity in _BY_SENTENCE:
            return self.check, self.severity, re.split(r"[\d:(\[]", self.detail)[0]
        finite = self.severity is not Severity.WRONG or math.isfinite(self.error)
        return self.check, self.severity, "" if finite else "not finite"
