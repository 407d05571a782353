"""What a check of conduct found comes first where the answers themselves show nothing."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import Attention, answer_of, catalogue
from mha_parity.core.candidate import FunctionCandidate
from mha_parity.core.case import Case
from mha_parity.core.features import make_offer
from mha_parity.diagnose import Observation, diagnose
from mha_parity.diagnose.call_effects import MUTATES, from_findings
from mha_parity.targets.bind import bind
from subject_checks import load_subject

if TYPE_CHECKING:
    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem

NOTE = "dropout of everything: with dropout 1 the output is NaN."


def noted(problem: Problem, answer: Answer, tolerances: float) -> tuple[Problem, Answer]:
    """Return an answer with a finding of a check, and an error of that number of tolerances."""
    low, high = 0.0, 1.0
    for _ in range(60):  # by bisection: the tolerance is the oracle's
        middle = (low + high) / 2
        output = answer.output.copy()
        output[0, 0, 0] += middle
        changed = dataclasses.replace(answer, output=output, notes=(NOTE,))
        error = Observation(problem, changed, failing=True).error_in_tolerances
        low, high = (middle, high) if error < tolerances else (low, middle)
    return problem, changed


@pytest.mark.parametrize("tolerances", [0.5, 1.5, 1000.0])
def test_a_finding_of_a_check_comes_first(tolerances: float) -> None:
    """Kills the limit 1 for such answers, and findings dropped beside what no experiment explains.

    An answer may err by more than the tolerance within the bound of its roundings.
    """
    candidate = bind(load_subject("projected.py:f"))
    plain = candidate.plain_case()
    cases = (plain.replace(queries=n, keys=n, seed=n) for n in (5, 6, 7))
    problems = map(make_problem, cases)
    failures = [noted(each, candidate(each), tolerances) for each in problems]
    first, *others = diagnose(candidate, failures, budget=4.0)
    assert "dropout-one-nan" == first.bug
    assert bool(others) is (tolerances > 100)
    assert 1 == first.explains


def test_a_finding_of_some_cases_explains_their_share() -> None:
    """Kills a share of 1 whatever has the finding: one case of three has it here."""
    candidate = bind(load_subject("projected.py:f"))
    plain = candidate.plain_case()
    problems = [make_problem(plain.replace(queries=n, keys=n, seed=n)) for n in (5, 6, 7)]
    noted_first, *others = [noted(each, candidate(each), 1000.0) for each in problems]
    bare = [(p, dataclasses.replace(each, notes=())) for p, each in others]
    first, *_ = diagnose(candidate, [noted_first, *bare], budget=4.0)
    assert "dropout-one-nan" == first.bug
    assert pytest.approx(1 / 3) == first.explains


def test_a_cause_that_is_understood_comes_alone() -> None:
    """Kills findings of checks before every cause."""
    answer = partial(answer_of, catalogue()["scale-none"].kinds[0])
    candidate = FunctionCandidate("unscaled", answer, make_offer(form="qkv", projection="none"))
    plain = Case(seed=0, batch=2, heads_count=2, queries=5, keys=5, head_dim=3, form="qkv",
                 projection="none")  # fmt: skip
    problems = [make_problem(plain.replace(queries=n, keys=n, seed=n)) for n in (5, 6, 7)]
    failures = [(p, dataclasses.replace(answer(p), notes=(NOTE,))) for p in problems]
    names = {each.bug for each in diagnose(candidate, failures, budget=6.0)}
    assert names
    assert "dropout-one-nan" not in names


def test_what_is_written_in_place_is_no_state() -> None:
    """Asked again with arrays that it changed, a target answers another problem."""
    problem = make_problem(Case(seed=1, batch=1, queries=4, keys=5, heads_count=2, head_dim=3))
    written = "inputs unchanged: the call wrote into `query`; copy it before changing it."
    again = "statelessness: elements differ by up to 0.2 when asked again."
    answer = dataclasses.replace(answer_of(Attention, problem), notes=(again, written))
    seen = [Observation(problem, answer, failing=True)]
    found, _ = from_findings(seen)
    assert [MUTATES] == [each.bug for each in found]
    stateful = dataclasses.replace(answer, notes=(again,))
    found, _ = from_findings([Observation(problem, stateful, failing=True)])
    assert [None] == [each.bug for each in found]
