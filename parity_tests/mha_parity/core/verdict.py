"""The verdict over a run: counts, features, failures, accuracy, environment. Plain data.

Every report (terminal, JSON, JUnit, page) is made from a ``Verdict`` and from nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from mha_parity.judgement import Judgement, Severity

if TYPE_CHECKING:
    from mha_parity.case import Case
    from mha_parity.values import Array

NAMED = 3  # features that the verdict's sentence names, of those that no case could tell about


class Outcome(StrEnum):
    """The verdict in a word, and with ``exit_status`` in a number."""

    PASS = "pass"  # noqa: S105  (an outcome, not a password)
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"

    @property
    def exit_status(self) -> int:
        """0 parity holds, 1 it does not, 3 inconclusive (2 is: could not start)."""
        return {"pass": 0, "fail": 1, "inconclusive": 3}[self.value]


@dataclass(frozen=True, slots=True)
class FeatureRow:
    """One feature in the report. ``status`` is pass, fail, inconclusive or "not offered".

    ``cases`` had the feature; ``failed`` of them failed. The target took ``seconds`` over them.
    """

    axis: str
    value: str
    status: str
    cases: int
    note: str = ""
    failed: int = 0
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One check (output, weights, swapped rows, inputs unchanged, ...) over the whole run.

    The target took ``seconds`` over the cases that it judged.
    """

    name: str
    cases: int
    failed: int
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed check, its case shrunk to the smallest that still fails (``case``)."""

    judgement: Judgement
    case: Case
    replay: str
    first_seen: Case | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A name for the bug, or measurements where no name fits (``bug`` is None)."""

    bug: str | None
    title: str
    remedy: str = ""
    explains: float = 0.0
    confident: bool = False
    aliases: tuple[str, ...] = ()
    evidence: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Errors beside torch's own in one dtype, over the cases where both were taken.

    ``contender`` is "target" or one of torch's paths ("weights" is the pinned one: 1 by
    definition); ``axis`` and ``value`` name the feature that the cases have, or nothing: all.
    ``bits``: how many bits more than torch's are lost, log2 of ``median_times_torch``.
    ``right_bits``: how many bits are right in the median, -log2 of the error over the largest
    number of its head.
    """

    dtype: str
    cases: int
    median_times_torch: float
    worst_times_torch: float
    bits: float
    contender: str = "target"
    axis: str = ""
    value: str = ""
    right_bits: float = float("nan")


@dataclass(frozen=True, eq=False, kw_only=True)
class Picture:
    """What the page draws of one failing case: the sample that holds the worst error.

    Weights are (H, L, S'), or (1, L, S') where only their average is known (``averaged``); NaN
    where the candidate's could not be had, which ``source`` explains. ``error_units`` is the
    output's error in units of the allowed error, (H, L), or (1, L) where the heads are mixed.
    """

    check: str
    case: Case
    sample: int
    averaged: bool
    source: str
    candidate_weights: Array | None
    gold_weights: Array
    error_units: Array


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a drawn matrix: what its numbers count, from ``first`` on, in which equal parts.

    ``blocks`` are the names of its parts, and each of these holds ``heads`` heads.
    """

    label: str
    blocks: tuple[str, ...] = ()
    heads: int = 1
    first: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Plate:
    """A gradient of the candidate beside the right one, both (rows, columns).

    ``first`` is the number of the first column in the whole array.
    """

    name: str
    candidate: Array
    gold: Array
    first: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class GradientPicture:
    """What the page draws of one failing gradient, the plate with the worst error first.

    There is a plate a head where the heads' gradients are arrays of their own, else one. Of inputs
    and masks they are those of ``sample``, which holds the worst error; it is negative elsewhere.
    ``error_units`` is the largest error of each group in units of the allowed error, and
    ``unit_rows`` and ``unit_columns`` name its rows and columns.
    """

    check: str
    case: Case
    sample: int
    plates: tuple[Plate, ...]
    rows: Side
    columns: Side
    error_units: Array
    unit_rows: tuple[str, ...]
    unit_columns: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Verdict:
    """All that a run found out about one target.

    ``accuracy`` is the target's, a row a dtype over all cases; ``accuracy_table`` has every
    contender over all cases, and target and pinned path over those of each feature that varies.
    ``power`` counts, of the ``weighed`` cases, those that would have shown each gross error.
    """

    target: str
    convention: str
    outcome: Outcome
    run: int
    passed: int
    failed: int
    inconclusive: int
    features: tuple[FeatureRow, ...]
    checks: tuple[CheckRow, ...]
    failures: tuple[Failure, ...]
    diagnosis: tuple[Diagnosis, ...] = ()
    accuracy: tuple[Accuracy, ...] = ()
    accuracy_table: tuple[Accuracy, ...] = ()
    worst: Judgement | None = None
    power: dict[str, int] = field(default_factory=dict)
    weighed: int = 0
    notes: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    pictures: tuple[Picture, ...] = ()
    gradient_pictures: tuple[GradientPicture, ...] = ()
    seconds: float = 0.0

    def __repr__(self) -> str:
        """Return the sentence: all the data would fill pages."""
        return f"<{type(self).__name__}: {self.sentence}>"

    @property
    def sentence(self) -> str:
        """Say the verdict in one sentence."""
        if self.outcome is Outcome.PASS:
            left = f"; rounding drowns the other {self.inconclusive}" if self.inconclusive else ""
            cases = f"{self.passed} of {self.run} cases{left}"
            return f"Parity holds: {self.target} equals torch in {cases}."
        if self.outcome is Outcome.FAIL:
            left = f"; {self.inconclusive} could not be judged" if self.inconclusive else ""
            cases = f"{self.failed} of {self.run} cases{left}"
            return f"Parity does not hold: {self.target} fails {cases}."
        open_rows = [f"{r.axis}={r.value}" for r in self.features if r.status == "inconclusive"]
        what = f"{self.inconclusive} of {self.run} cases could not be judged"
        if open_rows:
            more = f" and {len(open_rows) - NAMED} more" if len(open_rows) > NAMED else ""
            what = f"no case could have shown a bug in {', '.join(open_rows[:NAMED])}{more}"
        return f"Inconclusive: {self.target}: {what}."


__all__ = [
    "Accuracy", "CheckRow", "Diagnosis", "Failure", "FeatureRow", "GradientPicture", "Outcome",
    "Picture", "Plate", "Severity", "Side", "Verdict",
]  # fmt: skip
