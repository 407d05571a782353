"""Ask cases again in a fresh process: which answers depend on the calls that were made before.

Two failing cases, the first and the last, are asked one after the other, and a sample of the others
in reverse order. Where an answer differs from that in the run, the shortest beginning of the run
that changes it is found by bisection: its last call and the case are the two calls that show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mha_parity.checks.metamorphic import RELATIONS, scheduled_relation
from mha_parity.core.candidate import Answer, CandidateError, ask
from mha_parity.core.check_result import CheckResult, Severity
from mha_parity.core.compare import describe_difference, equal_up_to_rounding
from mha_parity.core.features import PLAIN
from mha_parity.oracle.torch_answers import problem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from mha_parity.core.candidate import Candidate
    from mha_parity.core.case import Case
    from mha_parity.core.own_weights import OwnWeights
    from mha_parity.core.problem import Problem
    from mha_parity.run.case_run import CaseResult
    from mha_parity.worker.client import IsolatedCandidate as _Process

CHECK = "statelessness"
FAILING = 2  # failing cases that are asked in a fresh process: the first and the last
SAMPLED_FROM = 200  # cases: a shorter run is not worth a further process
EVERY, BEFORE = 24, 480  # of these first cases of a run every 24th keeps its answer for the sample
EARLIER = 500  # calls among which the earlier one is looked for


def is_sampled(place: int) -> bool:
    """Return whether the case at this place of a run keeps its answer for a fresh process."""
    return place < BEFORE and place % EVERY == 0


class FreshProcesses:
    """Processes in which a target has not been called; the first can load before it is needed."""

    def __init__(self, candidate: Candidate) -> None:
        """Start none yet; a candidate in this process has none."""
        self.open: Callable[[], _Process] | None = getattr(candidate, "fresh", None)
        self._started: _Process | None = None
        self._asked = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._started is not None:
            self._started.close()

    def start(self) -> None:
        """Start the first, once."""
        if self.open is not None and not self._asked:
            self._asked, self._started = True, self.open()

    def __call__(self) -> _Process:
        """Return the one that was started, or the next one."""
        assert self.open is not None  # noqa: S101  (whoever asks has looked)
        started, self._started, self._asked = self._started, None, True
        return started or self.open()


def state_findings(
    candidate: Candidate, case_results: Sequence[CaseResult], fresh: FreshProcesses
) -> list[CheckResult]:
    """Return at most one failed check: two calls of which the earlier changes the later.

    Empty where the target has no process of its own.
    """
    if fresh.open is None:
        return []
    own = candidate.facts.own_weights
    search = _Search(fresh, [each.case for each in case_results], own)
    wrong = [place for place, each in enumerate(case_results) if each.fails]
    comparable = [p for p in wrong if _is_comparable(case_results[p])]
    comparable = [p for p in comparable if _is_answered_wrongly(case_results[p])] or comparable
    # Calls that recognise the target change the fresh process too, at the small sizes they have.
    chosen = comparable[:: max(len(comparable) - 1, 1)][:FAILING]
    answers = search.in_a_fresh_process([case_results[place].case for place in chosen])
    for place, answer in zip(chosen, answers, strict=True):
        found = search.failing(place, case_results[place], answer, is_first=place == chosen[0])
        if found:
            return [_finding(case_results[place].case, found)]
    kept = {place: each.answer for place, each in enumerate(case_results)
            if is_sampled(place) and each.answer and _is_comparable(each)}  # fmt: skip
    if wrong or len(case_results) < SAMPLED_FROM:
        return []
    return [_finding(case, found) for case, found in search.sample(kept)][:1]


def _is_answered_wrongly(result: CaseResult) -> bool:
    """Return whether the case's own answer fails, and not that to a problem made from it alone."""
    return any(r.severity.fails and r.check not in RELATIONS for r in result.check_results)


def _is_comparable(result: CaseResult) -> bool:
    """Return whether two answers differ by no more than rounding where they are the same."""
    case = result.case
    is_plain = case.regime == PLAIN["regime"] and case.masked_rows == PLAIN["masked_rows"]
    return is_plain and result.answer is not None


def _finding(case: Case, sentence: str) -> CheckResult:
    return CheckResult(case=case, check=CHECK, severity=Severity.BROKEN, detail=sentence)


@dataclass(frozen=True)
class _Search:
    """The search for two calls; ``fresh`` starts a process and ``run`` has the cases in order."""

    fresh: FreshProcesses
    run: list[Case]
    own_weights: OwnWeights | None

    def problem(self, case: Case) -> Problem:
        """Return the problem of a case, as the run asked it."""
        return problem_of(case, self.own_weights)

    def in_a_fresh_process(self, cases: Sequence[Case]) -> list[Answer | CandidateError]:
        """Return the answers to cases that are asked one after another in one process."""
        return self._all([self.problem(case) for case in cases]) if cases else []

    def failing(
        self, place: int, result: CaseResult, answer: Answer | CandidateError, *, is_first: bool
    ) -> str:
        """Say which earlier call changes the answer to a failing case; empty where none does.

        ``answer`` is that of a fresh process, where it was the first call or followed another.
        """
        case, in_run = result.case, result.answer
        if not _difference(answer, in_run):
            return self._relation(result)
        alone = answer if is_first else self._last([self.problem(case)])
        if _difference(alone, in_run) and not _difference(alone, self._last([self.problem(case)])):
            # Of the calls that recognised the target no case knows; those after it may do alike.
            others = [*self.run[max(0, place - EARLIER) : place], *self.run[place + 1 :]]
            return self._pair(others[:EARLIER], case, alone)
        return self._relation(result)

    def sample(self, kept: dict[int, Answer]) -> Iterator[tuple[Case, str]]:
        """Yield cases whose answer in the run differs from that in reverse order, and why."""
        order = sorted(kept, reverse=True)
        asked = [self.run[place] for place in order]
        answers = self._all([self.problem(case) for case in asked])
        for number, (place, answer) in enumerate(zip(order, answers, strict=True)):
            if _difference(answer, kept[place]):
                case = self.run[place]
                alone = self._last([self.problem(case)])
                if _difference(alone, self._last([self.problem(case)])):
                    continue  # it is not deterministic, alone or after others
                changed_in_run = _difference(alone, kept[place])
                earlier = self.run[:place] if changed_in_run else asked[:number]
                yield case, self._pair(earlier, case, alone)

    def _pair(self, earlier: Sequence[Case], case: Case, alone: Answer | CandidateError) -> str:
        """Say after which call an answer differs from ``alone``."""

        def after(cases: Sequence[Case]) -> str:
            return _difference(alone, self._last([self.problem(each) for each in (*cases, case)]))

        least, most = 0, 1
        if not after(earlier[:1]):
            least, most = 1, len(earlier)
            if not after(earlier):
                return f"{case.id} is answered otherwise in the run than in a fresh process."
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (least, middle) if after(earlier[:middle]) else (middle, most)
        last = earlier[most - 1]
        difference = after([last])
        which = last.id if difference else f"{most} calls that end with {last.id}"
        return _sentence(case.id, which, difference or after(earlier[:most]))

    def _relation(self, result: CaseResult) -> str:
        """Say whether a case itself changes the answer to the related problem asked after it."""
        failed = {each.check for each in result.check_results if each.severity.fails}
        problem = self.problem(result.case)
        relation = scheduled_relation(problem)
        if relation is None or not failed <= set(RELATIONS):
            return ""
        related = relation[1]
        alone = self._last([related.problem])
        difference = _difference(alone, self._last([problem, related.problem]))
        case_id = result.case.id
        return difference and _sentence(f"{case_id} with {related.change}", case_id, difference)

    def _last(self, problems: list[Problem]) -> Answer | CandidateError:
        return self._all(problems)[-1]

    def _all(self, problems: list[Problem]) -> list[Answer | CandidateError]:
        with self.fresh() as candidate:
            return list(ask(candidate, problems))


def _sentence(later: str, earlier: str, difference: str) -> str:
    return (
        f"{later} is answered otherwise after {earlier} than in a fresh process: {difference}; "
        "keep nothing of a call for the next."
    )


def _difference(expected: Answer | CandidateError | None, actual: object) -> str:
    """Say how two answers to one problem differ; empty where they do not or cannot be compared."""
    if not isinstance(expected, Answer) or not isinstance(actual, Answer):
        return ""
    if equal_up_to_rounding(expected.output, actual.output):
        return ""
    return describe_difference(expected.output, actual.output)
