"""Interface of a candidate: a name, the features that it offers, an answer to each problem."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from mha_parity.core.errors import UsageError
from mha_parity.core.target_facts import NO_FACTS, TargetFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """Arrays that a candidate returned, in the canonical layout of the problem.

    ``output`` is (N, L, H Dv); ``weights`` is None, averaged (N, L, S') or per head (N, H, L, S').
    Nothing is converted but the layout: a wrong dtype or shape arrives as the candidate made it.
    ``log_sum_exp`` is that of the scores of each row, (N, H, L), where the candidate returns it.
    ``gradients`` maps state-dict names, "query", "key", "value" and float masks to arrays.
    ``notes`` are facts about the candidate's conduct seen during the call, and
    ``held`` names the checks of conduct that were asked of this call and held; ``remarks`` are said
    and fail nothing. ``lost`` has the severity and the sentence of each further call, made for a
    check of conduct, that ended without an answer. ``parameters`` has the keys of the target's
    parameters that were passed so far, True where with another value than the default.
    ``seconds`` is how long the call took, where it was made.
    """

    output: Array
    weights: Array | None = None
    log_sum_exp: Array | None = None
    gradients: dict[str, Array] | None = None
    notes: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    lost: tuple[tuple[str, str], ...] = ()
    parameters: Mapping[str, bool] = field(default_factory=dict)
    seconds: float = 0.0


REMARK = "remark: "  # how a finding begins that is said and fails nothing
# How the sentences begin on cases that were not sent, and on calls that the harness could not make.
NOT_ASKED = "not asked"
NOT_CALLED = "could not be called"
# The remedy where a target is called in no known way.
ADAPTER = "judge an adapter that calls it, which `mha-parity adapt` begins"
# Where an exception was raised, behind its words: they may have slices and shapes in brackets, too.
PLACE = re.compile(r" \[(?P<file>[^\[\]\n]*[./<][^\[\]\n]*):(?P<line>\d+)\]")


class CandidateError(Exception):
    """The candidate gave no usable answer; the run goes on.

    ``severity`` is "crash", "timeout" or "structure", or "inconclusive" where it was not asked; the
    message is one sentence, followed by the last lines of the candidate's own output if any.
    ``raised_in``: of an exception, the files of the frames behind the harness's last one.
    """

    def __init__(self, severity: str, message: str, detail: str = "", seconds: float = 0.0) -> None:
        """Keep the severity, the sentence, the candidate's last words, and the time it had."""
        super().__init__(message)
        self.severity = severity
        self.detail = detail
        self.seconds = seconds
        self.raised_in: tuple[str, ...] | None = None


def place_of(said: str) -> tuple[str, int] | None:
    """Return file and line of the last place in a sentence; None where it has none."""
    found = [*PLACE.finditer(said)]
    return (found[-1]["file"], int(found[-1]["line"])) if found else None


def without_place(said: str) -> str:
    """Return a sentence without the places in it."""
    return PLACE.sub("", said)


class TargetError(UsageError):
    """The target cannot be loaded or called; one sentence: got, should be, remedy.

    ``nearest`` is the reading that came nearest, of a target that was called and that none fits.
    """

    def __init__(self, message: str, nearest: Any = None) -> None:
        super().__init__(message)
        self.nearest = nearest


class Candidate(Protocol):
    """An attention, made callable on problems by a convention."""

    @property
    def name(self) -> str:
        """Name of the candidate in reports."""
        ...

    @property
    def convention(self) -> str:
        """How it is called."""
        ...

    @property
    def offer(self) -> Offer:
        """Which features it can be asked for."""
        ...

    @property
    def facts(self) -> TargetFacts:
        """Facts known about the candidate besides its offer."""
        ...

    @property
    def masks(self) -> Any:
        """Masks that its parameters take, a ``targets.masks.plan.MaskPlan``; None without any."""
        ...

    def __call__(self, problem: Problem) -> Answer:
        """Return the candidate's answer; raise ``CandidateError`` when it gives none."""
        ...


@dataclass(frozen=True, eq=False)
class FunctionCandidate:
    """A candidate made from a function of a problem: used by tests and the catalogue."""

    name: str
    function: object
    offer: Offer
    convention: str = "problem"
    extras: dict[str, object] = field(default_factory=dict)
    facts: TargetFacts = NO_FACTS
    masks: Any = None

    def __call__(self, problem: Problem) -> Answer:
        """Call the function; anything but an ``Answer`` counts as the output alone."""
        result = self.function(problem)  # type: ignore[operator]  # any callable may be given
        return result if isinstance(result, Answer) else Answer(output=result)


def ask(candidate: Candidate, problems: Iterable[Problem]) -> Iterator[Answer | CandidateError]:
    """Yield the candidate's answer to each problem, or what it failed with."""
    many = getattr(candidate, "many", None)
    if many is not None:
        yield from many(problems)
        return
    for problem in problems:
        try:
            yield candidate(problem)
        except CandidateError as failure:
            yield failure
