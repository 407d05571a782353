"""A name is said where it predicts the experiments too; other causes stand next to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import Attention, answer_of, catalogue
from mha_parity.catalogue.gradients import with_gradients
from mha_parity.core.candidate import Answer, CandidateError, FunctionCandidate
from mha_parity.core.case import Case
from mha_parity.core.features import make_offer
from mha_parity.diagnose import Observation, diagnose, errs_by_rounding, gradients
from mha_parity.diagnose.call_effects import size_border
from mha_parity.diagnose.read_weights import plain_case
from mha_parity.oracle.eval_orders_vjp import VJP

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.core.verdict import Diagnosis


class Window(Attention):
    """Keys further than 16 places away are not seen."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide what is far."""
        i, j = np.indices(scores.shape[-2:])
        return np.where(np.abs(i - j) <= 16, super().mask_scores(scores), -np.inf)


PLAIN = make_offer(form="qkv", projection="none", inputs=("cross",), size=("small",))
LINEAR, UNSCALED = (catalogue()[name].kinds[0] for name in ("scale-linear", "scale-none"))


def named(function: Callable[[Problem], Answer], sizes: list[dict[str, int]]) -> list[Diagnosis]:
    """Return what the diagnosis says of a function that fails at these sizes."""
    candidate = FunctionCandidate("planted", function, PLAIN)
    frame = {"batch": 2, "queries": 4, "keys": 6, "heads_count": 3, "head_dim": 5, "form": "qkv",
             "projection": "none", "inputs": "cross"}  # fmt: skip
    problems = [make_problem(Case(seed=i, **{**frame, **s})) for i, s in enumerate(sizes)]  # type: ignore[arg-type]  # fields vary
    return list(diagnose(candidate, [(p, function(p)) for p in problems], budget=200))


SHORT = [{"keys": n, "queries": q} for n in (5, 8, 11) for q in (3, 6)]


def test_a_name_that_predicts_cases_and_experiments_is_said() -> None:
    """1/D at all sizes is the entry of the catalogue."""
    found = named(lambda p: answer_of(LINEAR, p), SHORT)
    assert ("scale-linear", True) == (found[0].bug, found[0].confident)


def test_a_name_that_an_experiment_contradicts_is_not_said() -> None:
    """1/D at up to 64 keys, and 1/E beyond: all cases have few keys, the experiments have more."""
    beyond = catalogue()["scale-dmodel"].kinds[0]
    found = named(lambda p: answer_of(beyond if p.key.shape[1] > 64 else LINEAR, p), SHORT)
    assert not [each.bug for each in found if each.bug]


def test_state_is_said_before_any_formula() -> None:
    """1/D, but 1 after one call in a thousand: no formula is right of what remembers a call."""
    last = [0]

    def remembers(problem: Problem) -> Answer:
        kind = UNSCALED if last[0] == 991 else LINEAR
        last[0] = problem.case.seed
        return answer_of(kind, problem)

    found = named(remembers, SHORT)
    assert "changes the answer to an earlier problem" in found[0].title
    assert not [each.bug for each in found if each.bug]


@pytest.mark.parametrize(("more", "rounding"), [(1e-7, False), (0.0, True)])
def test_digits_of_a_formula_are_not_those_of_a_narrower_dtype(more: float, rounding: bool) -> None:
    """1e-7 in the denominator is right by float32's bounds, and its error is no rounding."""

    class Added(Attention):
        def softmax(self, scores: Array) -> Array:
            weights = super().softmax(scores)
            return weights * (1 - more) if more else weights.astype("float32").astype("float64")

    candidate = FunctionCandidate("planted", lambda p: answer_of(Added, p), PLAIN)
    assert rounding is errs_by_rounding(candidate, plain_case(PLAIN))


def test_a_gradient_name_has_to_predict_designed_calls() -> None:
    """DQ without the scale at D = 5 alone is not the entry that lacks it at every D."""
    right = with_gradients(VJP)()
    wrong = catalogue()["grad-softmax-diag"].function()

    def sometimes(problem: Problem) -> Answer:
        return (wrong if problem.head_dim == 5 else right)(problem)

    offered = PLAIN | {"gradients": ("yes",)}
    cases = [
        Case(seed=s, batch=2, queries=4, keys=6, heads_count=3, head_dim=5, form="qkv",
             projection="none", inputs="cross", gradients="yes") for s in range(3)
    ]  # fmt: skip
    problems = [make_problem(case) for case in cases]
    for function, name in ((wrong, "grad-softmax-diag"), (sometimes, None)):
        candidate = FunctionCandidate("planted", function, offered)
        pairs = [(p, function(p)) for p in problems]
        found = gradients.name_wrong_gradients(candidate, pairs)
        assert name == found[0].bug


NOTE = "determinism: elements differ by up to 3 between two equal calls."


@pytest.mark.parametrize("everywhere", [False, True])
def test_calls_that_differ_in_a_few_cases_are_no_cause_of_the_others(everywhere: bool) -> None:
    """1/D with one odd note names the scale first; what differs in every call, only that."""
    rng = np.random.default_rng(3)

    def answer(problem: Problem) -> Answer:
        found = answer_of(LINEAR, problem)
        if everywhere:
            found = replace(found, output=found.output + rng.random())
        return replace(found, notes=(NOTE,) if problem.case.seed == 3 else ())

    found = named(answer, SHORT)
    assert found[0].bug == (None if everywhere else "scale-linear")
    assert "differ" in found[0 if everywhere else -1].title


def small_problem(batch: int, seed: int) -> Problem:
    """Return a plain problem of projected queries."""
    return make_problem(Case(seed=seed, batch=batch, queries=4, keys=5, heads_count=2, head_dim=3,
                             inputs="cross", form="qkv", projection="none"))  # fmt: skip


def test_what_is_known_leaves_no_facts_about_plain_problems() -> None:
    """Right answers whose buffer is used again: no stage departs, and no line says so."""
    text = "output aliasing: a later call overwrites the output of an earlier one: other rows."
    problems = [small_problem(2, seed) for seed in range(3)]
    candidate = FunctionCandidate("reuses", lambda p: answer_of(Attention, p), PLAIN)
    answers = [replace(answer_of(Attention, p), notes=(text,)) for p in problems]
    found = diagnose(candidate, list(zip(problems, answers, strict=True)), budget=60)
    assert ["output-buffer-reused"] == [each.bug for each in found]


@pytest.mark.parametrize("squeezed", [True, False])
def test_an_axis_that_is_squeezed_away_is_said(squeezed: bool) -> None:
    """(1, L, E) that comes as (L, E) loses an axis; as (E, L) it does not."""
    seen = []
    for n in (1, 2):
        for seed in range(5):
            problem = small_problem(n, seed)
            found = answer_of(Attention, problem)
            if n == 1:
                output = found.output[0] if squeezed else found.output[0].T
                found = replace(found, output=output)
            seen.append(Observation(problem, found, failing=n == 1))
    (said,) = size_border(seen)
    assert said.title.startswith("the output loses an axis where N = 1") is squeezed
    assert ("squeeze" in said.remedy) is squeezed


@pytest.mark.parametrize("convention", ["fitted", "qkv"])
def test_causes_are_not_said_of_calls_that_may_be_misread(convention: str) -> None:
    """Odd lengths raise, and a window hides keys: where small calls were the guide, only the first.

    A convention that is recognised by its signature has no such doubt: both are said.
    """

    class Window(Attention):
        """Keys further than 3 places away are not seen."""

        def mask_scores(self, scores: Array) -> Array:
            """Hide what is far."""
            i, j = np.indices(scores.shape[-2:])
            return np.where(np.abs(i - j) <= 3, super().mask_scores(scores), -np.inf)

    def answer(problem: Problem) -> Answer:
        if problem.case.queries % 2:
            raise CandidateError("crash", "raised ValueError: cannot reshape")
        return answer_of(Window, problem)

    sizes = [{"queries": q, "keys": q + 3} for q in (4, 6, 8)]
    candidate = FunctionCandidate("odd", answer, PLAIN, convention=convention)
    frame = {"batch": 2, "heads_count": 3, "head_dim": 5, "form": "qkv", "projection": "none",
             "inputs": "cross"}  # fmt: skip
    problems = [make_problem(Case(seed=i, **{**frame, **s})) for i, s in enumerate(sizes)]  # type: ignore[arg-type]  # fields vary
    found = diagnose(candidate, [(p, answer(p)) for p in problems], crashes=True, budget=200)
    assert "the call raised ValueError: cannot reshape wherever L is odd" == found[0].title
    assert any("sees keys" in each.title for each in found) is (convention == "qkv")
    assert ("mend this first" in found[0].evidence) is (convention == "fitted")
