"""The verdict over a run: counts, features, failures, accuracy, environment. Plain data.

Every report (terminal, JSON, JUnit, page) is made from a ``Verdict`` and from nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from mha_parity.core.check_result import CheckResult, Severity
from mha_parity.core.features import AS_ALL_KEYS, IN_EVERY_CALL, ONE_ROW, SQUARE, UNMASKED, label
from mha_parity.core.parameters import NO_ANSWER, ONE_SAMPLE, Role, Status

if TYPE_CHECKING:
    from mha_parity.core.case import Case
    from mha_parity.core.parameters import Parameter
    from mha_parity.core.report_arrays import CaseError, GradientPicture, WeightsPicture

TARGET = "target"  # the contender of an accuracy row that is judged
PINNED_PATH = "weights"  # torch's path that the oracle takes, whose errors are the unit
TOO_COARSE = "rounding error too large to tell"
# Features that the verdict's sentence names, of those that no case could tell about.
MAX_NAMED_FEATURES = 3


class Outcome(StrEnum):
    """Outcome of a run and its exit status."""

    PASS = "pass"  # noqa: S105  (an outcome, not a password)
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"

    @property
    def exit_status(self) -> int:
        """0 parity holds, 1 it does not, 3 inconclusive (2 is: could not start)."""
        return {"pass": 0, "fail": 1, "inconclusive": 3}[self.value]


@dataclass(frozen=True, slots=True)
class FeatureRow:
    """One feature in the report.

    ``status`` is pass, fail, inconclusive, "not offered", "left out" by an option, or "not drawn"
    in a short run.

    ``cases`` had the feature; ``failed`` of them failed. The target took ``seconds`` over them.
    ``reason`` says why it has this status, "" where it passes.
    """

    axis: str
    value: str
    status: str
    cases: int
    reason: str = ""
    failed: int = 0
    seconds: float = field(default=0.0, compare=False)


# An axis, and some of its values.
FeatureSet: TypeAlias = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failing cases with features in common: those of one bug, where features separate several.

    ``common``: what all of them have and other cases lack, beyond chance; the first explains most,
    each further one is tested among the cases with those before it. ``explained``: what they have
    in common too, and no longer among these cases. ``absent``: the values that none of them has,
    on axes of which most values fail.
    """

    common: tuple[FeatureSet, ...] = ()
    explained: tuple[FeatureSet, ...] = ()
    absent: tuple[FeatureSet, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One check over the whole run.

    The target took ``seconds`` over the cases that it judged.
    """

    name: str
    cases: int
    failed: int
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed check, its case shrunk to the smallest that still fails (``case``)."""

    check_result: CheckResult
    case: Case
    replay: str
    shrunk_from: Case | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A name for the bug, or measurements where no name fits (``bug`` is None).

    ``operation`` is that of the target's code which a measured cause says is wrong, if it says so.
    """

    bug: str | None
    title: str
    remedy: str = ""
    explains: float = 0.0
    confident: bool = False
    aliases: tuple[str, ...] = ()
    evidence: str = ""
    seen_in: str = ""
    operation: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the target is defined: its file as the target names it, and the line from 1 on.

    ``text`` is the definition, empty in a notebook. ``raised_at`` is the line of that file at which
    a failing call raised an exception; 0 where none did. ``suspects`` are the lines in which the
    first cause of the diagnosis most likely lies, with their text; none where the source leaves
    more than one place possible.
    """

    file: str
    line: int
    text: str = ""
    raised_at: int = 0
    suspects: tuple[tuple[int, str], ...] = ()

    @property
    def marked(self) -> int:
        """The line to look at first: the suspect, else the one that raised, else the first."""
        return self.suspects[0][0] if self.suspects else self.raised_at or self.line


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Errors in units of torch's own in one dtype, over the cases where both were taken.

    ``contender`` is "target" or one of torch's paths ("weights" is the pinned one: 1 by
    definition); ``axis`` and ``value`` name the feature that the cases have, or nothing: all.
    ``bits_lost``: how many bits more than torch's are lost, log2 of ``median_times_torch``.
    ``bits_right``: how many bits are right in the median, -log2 of the error over the largest
    number of its head.
    """

    dtype: str
    cases: int
    median_times_torch: float
    worst_times_torch: float
    bits_lost: float
    contender: str = "target"
    axis: str = ""
    value: str = ""
    bits_right: float = float("nan")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Verdict:
    """All that a run found out about one target.

    ``accuracy`` is the target's, a row per dtype over all cases; ``accuracy_table`` has every
    contender over all cases, and target and pinned path over those of each feature that varies.
    ``parameters`` are the target's, each with whether some case passed it.
    ``reasons`` counts the inconclusive cases by why they are.
    ``sensitivity`` counts, of the ``measured_cases``, those that would have shown each gross error.
    ``drawn`` cases were to be asked; ``stopped_early``: the run ended before, at its last failure.
    ``improbable`` counts the outputs with an error that roundings of their dtype do not reach, and
    has the largest of these errors in units of torch's own.
    ``dtype_finding`` says that answers have a narrower dtype than the inputs, where cases fail so.
    ``source`` is None where no file defines the target.
    """

    target: str
    convention: str
    outcome: Outcome
    run: int
    passed: int
    failed: int
    inconclusive: int
    features: tuple[FeatureRow, ...]
    parameters: tuple[Parameter, ...] = ()
    checks: tuple[CheckRow, ...]
    failures: tuple[Failure, ...]
    failure_groups: tuple[FailureGroup, ...] = ()
    diagnosis: tuple[Diagnosis, ...] = ()
    accuracy: tuple[Accuracy, ...] = ()
    accuracy_table: tuple[Accuracy, ...] = ()
    worst: CheckResult | None = None
    sensitivity: dict[str, int] = field(default_factory=dict)
    measured_cases: int = 0
    notes: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    pictures: tuple[WeightsPicture, ...] = ()
    gradient_pictures: tuple[GradientPicture, ...] = ()
    case_errors: tuple[CaseError, ...] = ()
    seconds: float = 0.0
    dtype_finding: str = ""
    source: Source | None = None
    drawn: int = 0
    stopped_early: bool = False
    reasons: dict[str, int] = field(default_factory=dict)
    improbable: tuple[int, float] = (0, 0.0)

    def __repr__(self) -> str:
        """Return the sentence: all the data would fill pages."""
        return f"<{type(self).__name__}: {self.sentence}>"

    @property
    def holds(self) -> bool:
        """Whether parity holds; False where it does not and where the run is inconclusive."""
        return self.outcome is Outcome.PASS

    def __bool__(self) -> bool:
        """Return ``holds``."""
        return self.holds

    @property
    def sentence(self) -> str:
        """Say the verdict in one sentence."""
        if self.outcome is Outcome.PASS:
            cases = f"{self.passed} of {self.run} cases{self._inconclusive}{self._left_out}"
            return f"Parity holds: {self.target} equals torch in {cases}{self._raising_dtypes}."
        if self.outcome is Outcome.FAIL:
            cases = f"{self._failed_cases}{self._inconclusive}"
            if not self.failed:
                return f"Parity does not hold: {self.target}: {self._over_run}."
            dtype = f" {self.dtype_finding}, and" if self.dtype_finding else ""
            return f"Parity does not hold: {self.target}{dtype} fails {cases}."
        if self.failed:
            said = self.failures[0].check_result.detail.partition("\n")[0]
            cases = f"in {self.failed} of {self.run} cases"
            return (
                f"Inconclusive: {self.target} {said} {cases}; raise --timeout, or mend what does "
                "not end."
            )
        untried = [each for each in self.parameters if each.is_untried]
        if untried or self.improbable[0]:
            less = f" {self._less_accurate}" if self.improbable[0] else ""
            tried = f": {_way_out(untried)}{self._left_out}" if untried else ""
            return f"Inconclusive: {self.target}{less}{tried}."
        open_rows = [label(r.axis, r.value) for r in self.features if r.status == "inconclusive"]
        what = f"{self.inconclusive} of {self.run} cases could not be judged"
        if open_rows:
            named, further = open_rows[:MAX_NAMED_FEATURES], open_rows[MAX_NAMED_FEATURES:]
            more = f" and {len(further)} more" if further else ""
            what = f"none of {self.run} cases could have shown a bug in {'; '.join(named)}{more}"
            what += ": ask for more"
        return f"Inconclusive: {self.target}: {what}{self._left_out}."

    @property
    def _failed_cases(self) -> str:
        """Count the failing cases among those that were asked."""
        if self.stopped_early and self.run == 1:
            return "the first case"
        first = "the first " if self.stopped_early else ""
        return f"{self.failed} of {first}{self.run} cases"

    @property
    def _inconclusive(self) -> str:
        """Count the inconclusive cases, with the reason that most have."""
        if not self.inconclusive:
            return ""
        said = f"; {self.inconclusive} inconclusive"
        reason, count = max(self.reasons.items(), key=lambda each: each[1], default=("", 0))
        most = "" if count == self.inconclusive else f", {count} of them"
        return f"{said}{most}: {reason}" if reason else said

    @property
    def _less_accurate(self) -> str:
        """Say in how many cases there are fewer digits than the dtype has, and the way out."""
        count, factor = self.improbable
        return (
            f"is less accurate than torch, up to {factor:.2g} times, in {count} of {self.run} "
            "cases, which rounding in their dtype does not explain; compute in that dtype, or say "
            "by --max-times-torch which factor is right"
        )

    @property
    def _over_run(self) -> str:
        """Say what the checks over the whole run found, where no single case fails."""
        found = (each.check_result for each in self.failures)
        said = [f"{each.check} {each.detail.partition(' (')[0]}".rstrip(".") for each in found]
        return f"{'; '.join(said)}; no single one of {self.run} cases fails"

    @property
    def _left_out(self) -> str:
        """Name the parameters that no case passed, by status."""
        parts = [p.name for p in self.parameters if p.role is Role.PART]
        said = f"; without its {', '.join(parts)}" if parts else ""
        for status in (Status.NOT_TRIED, Status.DEFAULT_ONLY, Status.EXCLUDED):
            names = dict.fromkeys(
                p.name
                for p in self.parameters
                if p.status is status and not p.is_untried and p.role is not Role.PART
            )
            said += f"; parameters {status.value}: {', '.join(names)}" if names else ""
        limited: dict[str, dict[str, None]] = {}
        for p in self.parameters:
            limits = " and ".join(
                x for x in (SQUARE, UNMASKED, ONE_ROW, AS_ALL_KEYS, IN_EVERY_CALL) if x in p.meaning
            )
            limited.setdefault(limits, {})[p.name] = None
        limited.pop("", None)
        return said + "".join(f"; passed {x}: {', '.join(of)}" for x, of in limited.items())

    @property
    def _raising_dtypes(self) -> str:
        """Name the dtypes in which calls raise; bfloat16 alone is no dtype of NumPy's."""
        raising = [
            row.value for row in self.features if row.axis == "dtype" and "raised" in row.reason
        ]
        return f"; calls raise in {', '.join(raising)}" if {*raising} - {"bfloat16"} else ""


# Of which the option for a mask's meaning says nothing.
WITHOUT_MEANING = frozenset({Role.KEYWORDS, Role.CAUSAL, Role.WINDOW})


@dataclass(frozen=True, slots=True)
class Refusal:
    """A target that came to no verdict, and why: one sentence with the remedy."""

    target: str
    sentence: str


def counted_cases(count: int) -> str:
    """Return a count of cases in words."""
    return "1 case" if count == 1 else f"{count} cases"


def _way_out(untried: list[Parameter]) -> str:
    """Say which parameters were not tried, why, and the options that help."""
    keys = [each for each in untried if each.role is Role.KEYS]
    if keys:
        said = (
            f"`{keys[0].name}` is an input of its own, and every call with S unlike L "
            f"{keys[0].reason}, where torch's layer answers; mend that, or judge S = L alone by "
            "--features inputs=self"
        )
        rest = [each for each in untried if each.role is not Role.KEYS]
        return f"{said}; {_way_out(rest)}" if rest else said
    names = ", ".join(f"`{each.name}` ({each.role.value})" for each in untried)
    reasons = "; ".join(dict.fromkeys(each.reason for each in untried if each.reason))
    without = ",".join(dict.fromkeys(each.name for each in untried))
    it = "it" if len(untried) == 1 else "them"
    if {each.role for each in untried} == {Role.WINDOW}:
        said = f"no case passed {names}{f': {reasons}; mend that' if reasons else '; ask more'}"
        return f"{said}, or exclude {it} with --without {without}"
    # A meaning helps where a call is answered, and a switch has no other than its name says.
    open_meanings = [
        f"--masks {each.name}=hides, keeps or additive"
        for each in untried
        if each.role not in WITHOUT_MEANING and not each.reason.startswith(NO_ANSWER)
    ]
    if len(open_meanings) == len(untried):
        remedy = f"say what it means by {' and by '.join(open_meanings)}"
    else:
        remedy = f"judge an adapter that passes {it}, which `mha-parity adapt` begins"
    if reasons == ONE_SAMPLE:
        return f"{names}: {ONE_SAMPLE}; exclude {it} with --without {without}"
    return (
        f"no case passed {names}{': ' + reasons if reasons else ''}; {remedy}, name another "
        f"--convention, or exclude {it} with --without {without}"
    )


__all__ = [
    "Accuracy", "CheckRow", "Diagnosis", "Failure", "FailureGroup", "FeatureRow", "FeatureSet",
    "Outcome", "Refusal", "Severity", "Source", "Verdict",
]  # fmt: skip
