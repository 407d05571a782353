"""Run the checks of the suite on the wrong attentions of the catalogue, case by case."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.catalogue.plain_layer import bound_layer, with_right_fallback
from mha_parity.catalogue.registry import whole_offer
from mha_parity.checks.call_effects import FURTHER, MonitoredCandidate
from mha_parity.checks.metamorphic import judge_relation, scheduled_relation
from mha_parity.core.candidate import Answer, CandidateError
from mha_parity.core.check_result import SYSTEMATIC
from mha_parity.judging.gradients import judge_gradients
from mha_parity.judging.output import JudgeSettings, judge_answer
from mha_parity.judging.systematic_error import SystematicErrorTest
from mha_parity.oracle.error_bound import bound
from mha_parity.oracle.reference import reference_answer
from mha_parity.run.case_run import ANSWERED
from mha_parity.selftest.mutation_matrix import GRADIENTS, EntryKind, MutantResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mha_parity.catalogue import Bug
    from mha_parity.checks.metamorphic import RelatedProblem
    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.oracle.reference import Reference

FULL = 48  # cases on which every check is made of every bug


def monitored(bug: Bug) -> Callable[[Problem], Answer]:
    """Return a wrong attention as a run calls it: a layer with its calls monitored."""
    if bug.layer is None:
        return bug.function()
    return with_right_fallback(MonitoredCandidate(bound_layer(bug.layer()), forbid=bug.forbid))


@cache
def suite_cases(
    dtype: str, seed: int, count: int, gradients: tuple[str, ...] = ("no",)
) -> tuple[Case, ...]:
    """Return the cases that the suite draws for a candidate that offers everything."""
    offer = whole_offer() | {"dtype": (dtype,), "gradients": gradients}
    return tuple(draw_cases(offer, count, seed))


def run_mutants(bugs: Sequence[Bug], cases: Sequence[Case], full: int = FULL) -> list[MutantResult]:
    """Return which checks see each bug over cases of one dtype.

    A bug that was seen meets the first ``full`` cases, any other all of them.
    """
    mutants = [Mutant(bug) for bug in bugs]
    for i, case in enumerate(cases):
        left = [each for each in mutants if i < full or not each.by]
        if not left:
            break
        prepared = _prepared(case)
        for each in left:
            each.run_case(*prepared)
    return [each.kill(cases[0].dtype) for each in mutants]


@cache
def _prepared(case: Case) -> tuple[Problem, Reference, tuple[str, RelatedProblem] | None]:
    """Return problem, reference and scheduled relation of a case, once a process."""
    problem = make_problem(case)
    return problem, reference_answer(problem), scheduled_relation(problem)


class Mutant:
    """One wrong attention, and the counts of the checks that it failed so far."""

    def __init__(self, bug: Bug) -> None:
        self.bug = bug
        self.function = monitored(bug)
        self.settings = JudgeSettings(
            fully_masked="nan" if bug.policy else None, strict_padding=bug.policy
        )
        self.by: Counter[str] = Counter()
        self.systematic = SystematicErrorTest()
        self.cases = 0
        self.first: int | None = None

    def run_case(
        self, problem: Problem, reference: Reference, relation: tuple[str, RelatedProblem] | None
    ) -> None:
        """Count the checks that fail on one case."""
        self.cases += 1
        answer = self.answer(problem)
        if answer is not None:
            self.judge(problem, reference, answer)
            if relation is not None and answer.output.shape == reference.output.shape:
                self.relate(*relation, answer, bound(problem, reference).output)
        self.by = +self.by  # drop the checks that failed 0 times
        if self.by and self.first is None:
            self.first = self.cases

    def judge(self, problem: Problem, reference: Reference, answer: Answer) -> None:
        """Count the failures of output, weights, gradients and conduct."""
        with np.errstate(all="ignore"):
            for check_result in judge_answer(problem, reference, answer, self.settings):
                self.by[check_result.check] += check_result.severity.fails
            if problem.case.gradients == "yes":
                found = judge_gradients(problem, reference, answer, self.settings)
                self.by[GRADIENTS] += any(check_result.severity.fails for check_result in found)
        self.by.update({note.partition(": ")[0] for note in answer.notes})
        self.by[FURTHER] += bool(answer.lost)
        self.systematic.add(problem, reference, answer)

    def relate(self, name: str, related: RelatedProblem, first: Answer, limit: Array) -> None:
        """Count the failures of a relation between the answers to two problems."""
        second = self.answer(related.problem)
        if second is not None:
            outputs = first.output, second.output
            again = judge_relation(related.problem, limit, *outputs, name, related)
            self.by[name] += again.severity.fails

    def answer(self, problem: Problem) -> Answer | None:
        """Return its answer; None, and a failure, where it raises."""
        try:
            return self.function(problem)
        except CandidateError:
            self.by[ANSWERED] += 1
            return None

    def kill(self, dtype: str) -> MutantResult:
        """Return the checks that saw it, the systematic error of the run among them."""
        if any(check_result.severity.fails for check_result in self.systematic.check_results()):
            self.by[SYSTEMATIC] += 1
            self.first = self.first or self.cases
        bug = self.bug
        role = EntryKind.BUG if bug.equivalent is None else EntryKind.EQUIVALENT
        if bug.family == 0:
            role = EntryKind.CONTROL
        elif bug.beyond is not None:
            role = EntryKind.BEYOND
        return MutantResult(
            bug.id, dtype, dict(self.by), self.cases, self.first,
            role=role, family=bug.family, proof=bug.equivalent or bug.beyond or "",
        )  # fmt: skip
