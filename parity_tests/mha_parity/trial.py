"""One case from problem to judgements: the candidate's answer, the oracle's, and the relations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from mha_parity import power
from mha_parity.accuracy import PATHS, TARGET, measured, times_torch
from mha_parity.bound import bound
from mha_parity.candidate import Answer, CandidateError
from mha_parity.gold import golden
from mha_parity.gradients import CHECK, judge_gradients
from mha_parity.judgement import Judgement, Severity
from mha_parity.judging import judge
from mha_parity.making import make
from mha_parity.related import judge_relation
from mha_parity.relations import in_turn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.accuracy import Measured
    from mha_parity.candidate import Candidate
    from mha_parity.case import Case
    from mha_parity.gold import Gold
    from mha_parity.judging import Settings
    from mha_parity.problem import Problem
    from mha_parity.relations import Related

# On every so-manieth case torch's own error in the same dtype is measured, and that of all paths.
ACCURACY_EVERY = 4
PATHS_EVERY = 16
# What says something of a run rather than of a case (power, accuracy, sums of signed errors) shows
# in hundreds of cases: a longer run is measured on its first and on every so-manieth behind them.
ALL_OF, THEN_EVERY = 2000, 5
RELATIONS_A_CASE = 1  # the relations take turns: over a run each is asked of many cases
CHUNK = 24  # cases on their way to a candidate in another process while the oracle works

ANSWERED = "answers"


@dataclass(frozen=True, eq=False, kw_only=True)
class Trial:
    """What came of one case.

    ``exposes``: the gross errors that this case would have shown; None where nobody measured it.
    ``seconds``: how long the target took to answer, or was waited for.
    """

    case: Case
    judgements: tuple[Judgement, ...]
    exposes: frozenset[str] | None = frozenset()
    measured: tuple[Measured, ...] = ()
    problem: Problem | None = None
    gold: Gold | None = None
    answer: Answer | None = None
    seconds: float = 0.0
    remarks: tuple[str, ...] = ()

    @property
    def fails(self) -> bool:
        """Whether any check of the case failed."""
        return any(judgement.severity.fails for judgement in self.judgements)

    @property
    def fails_forward(self) -> bool:
        """Whether a check of anything but gradients failed."""
        failing = (each.check for each in self.judgements if each.severity.fails)
        return not all(check.startswith(CHECK) for check in failing)

    @property
    def inconclusive(self) -> bool:
        """Whether nothing failed, but something could not be judged."""
        severities = {judgement.severity for judgement in self.judgements}
        return not self.fails and Severity.INCONCLUSIVE in severities

    def light(self) -> Trial:
        """Return the trial without its arrays: what a long run keeps of it."""
        return replace(self, problem=None, gold=None, answer=None)


def is_measured(place: int) -> bool:
    """Return whether the case at this place of a run is among those that the run is measured on."""
    return place < ALL_OF or place % THEN_EVERY == 0


def try_cases(
    candidate: Candidate, cases: Sequence[Case], settings: Settings, first: int = 0
) -> Iterator[Trial]:
    """Yield the trial of each case; the candidate and the oracle work side by side where they can.

    ``first`` is the place of the first of them in the run. The relation asked of a case follows
    from its seed, so that a case alone behaves as in a run.
    """
    for start in range(0, len(cases), CHUNK):
        problems = [make(case) for case in cases[start : start + CHUNK]]
        related = [_turn(problem) for problem in problems]
        asked = [p for p, more in zip(problems, related, strict=True) for p in (p, *_of(more))]
        answers = ask(candidate, asked)
        for place, (problem, more) in enumerate(zip(problems, related, strict=True), first + start):
            gold = golden(problem)
            answer = next(answers)
            others = [(name, rel, next(answers)) for name, rel in more]
            yield _judged(problem, gold, answer, others, settings, measure=is_measured(place))


def try_case(candidate: Candidate, case: Case, settings: Settings) -> Trial:
    """Return the trial of one case."""
    return next(try_cases(candidate, [case], settings))


def ask(candidate: Candidate, problems: Sequence[Problem]) -> Iterator[Answer | CandidateError]:
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


def _turn(problem: Problem) -> list[tuple[str, Related]]:
    """Return the relations that are this problem's turn."""
    return list(islice(in_turn(problem, problem.case.seed), RELATIONS_A_CASE))


def _of(related: list[tuple[str, Related]]) -> list[Problem]:
    return [relation.problem for _, relation in related]


def _judged(
    problem: Problem,
    gold: Gold,
    answer: Answer | CandidateError,
    others: list[tuple[str, Related, Answer | CandidateError]],
    settings: Settings,
    *,
    measure: bool,
) -> Trial:
    case = problem.case
    if isinstance(answer, CandidateError):
        judged = (failed_call(case, answer),)
        return Trial(
            case=case, judgements=judged, problem=problem, gold=gold, seconds=answer.seconds
        )
    judgements = [*judge(problem, gold, answer, settings), *_conduct(case, answer)]
    if case.gradients == "yes":
        judgements += judge_gradients(problem, gold, answer, settings)
    if not any(judgement.severity.fails for judgement in judgements):
        judgements += [_related(problem, gold, answer, *other) for other in others]
    accuracy = _measured(problem, gold, answer, judgements) if measure else ()
    return Trial(
        case=case,
        judgements=tuple(_with_accuracy(problem, gold, answer, judgements, accuracy)),
        measured=accuracy,
        exposes=power.exposed(problem, gold) if measure else None,
        problem=problem,
        gold=gold,
        answer=answer,
        seconds=answer.seconds,
        remarks=answer.remarks,
    )


def failed_call(case: Case, failure: CandidateError) -> Judgement:
    """Return the judgement on a call that gave no usable answer."""
    detail = f"{failure}\n{failure.detail}".rstrip()
    return Judgement(case=case, check=ANSWERED, severity=Severity(failure.severity), detail=detail)


def _conduct(case: Case, answer: Answer) -> Iterator[Judgement]:
    """Yield a failed check for every note on conduct, ``name: sentence``, and what held."""
    for name in answer.held:
        yield Judgement(case=case, check=name, severity=Severity.MATCH)
    for note in answer.notes:
        name, _, sentence = note.partition(": ")
        yield Judgement(case=case, check=name, severity=Severity.STRUCTURE, detail=sentence)


def _measured(
    problem: Problem, gold: Gold, answer: Answer, judgements: list[Judgement]
) -> tuple[Measured, ...]:
    """Return the errors of the target and of torch's paths, where it is the case's turn."""
    seed = problem.case.seed
    fails = any(each.severity.fails for each in judgements if each.check == "output")
    if fails or seed % ACCURACY_EVERY:
        return ()
    return measured(problem, gold, answer.output, paths=() if seed % PATHS_EVERY else PATHS)


def _with_accuracy(
    problem: Problem,
    gold: Gold,
    answer: Answer,
    judgements: list[Judgement],
    accuracy: tuple[Measured, ...],
) -> Iterator[Judgement]:
    """Yield the judgements, the output's beside torch's own error where that is measured."""
    known = {each.contender: each.times_torch for each in accuracy}
    for judgement in judgements:
        times = judgement.times_torch
        if judgement.check == "output" and not judgement.severity.fails and times is None:
            times = known.get(TARGET)
            if times is None and judgement.severity is Severity.LESS_ACCURATE:
                times = times_torch(problem, gold, answer.output)
        yield judgement if times is None else replace(judgement, times_torch=times)


def _related(
    problem: Problem,
    gold: Gold,
    first: Answer,
    name: str,
    related: Related,
    second: Answer | CandidateError,
) -> Judgement:
    if isinstance(second, CandidateError):
        return failed_call(problem.case, second)
    return judge_relation(
        problem, bound(problem, gold).output, first.output, second.output, name, related
    )
