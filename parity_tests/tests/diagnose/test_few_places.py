"""What is wrong at few scores, rows or masks alone is said as that, and of right twins nothing."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from mha_parity.catalogue import Attention, answer_of
from mha_parity.diagnose.experiments.conditions.values import FEWER, MANY, QUICK, values
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.gradients.gradients import gradient_effects
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from subject_checks import SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention


@pytest.fixture(scope="module")
def bound() -> Callable[[str], Convention]:
    """Return a function that makes one of the subjects callable on problems."""
    return lambda name: bind(load.load(f"{SUBJECTS}/wrong_at_few_places.py:{name}"))


@pytest.fixture(scope="module")
def said(bound: Callable[[str], Convention]) -> Callable[[str], list[str]]:
    """Return a function that gives what the experiments say of one of the subjects."""

    def found(name: str) -> list[str]:
        return [
            each.text for each in cause_findings(run_experiments(Caller(bound(name), lambda: True)))
        ]

    return found


CAUSES = {
    "by_threes": "in the last rows beyond a multiple of 3: the effective scale is",
    "first_maximum": "in float64, wherever S > 48: that key has no part in the maximum",
    "zeros_hidden": "keys whose score is exactly 0 get no weight",
    "zero_keys_hidden": "keys that are 0 in every channel get no weight",
    "ByLength": "where N = H: the mask of sample h is applied to head h of every sample",
}


@pytest.mark.repeats(2)
@pytest.mark.parametrize("name", CAUSES)
def test_what_is_wrong_at_few_places_is_said(name: str, said: Callable[[str], list[str]]) -> None:
    """One sentence has the place and the step."""
    (found,) = said(name)
    assert CAUSES[name] in found


def test_a_mask_is_inverted_where_it_is_passed(said: Callable[[str], list[str]]) -> None:
    """A padding mask is passed as an attn_mask too, and is right by its own parameter."""
    (found,) = said("Inverted")
    assert "the mask is inverted" in found
    assert "attn=bool2d" in found
    assert "padding" not in found


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    "name", ["by_threes_scaled", "followed_maximum", "future_hidden", "Layer", "NotInverted"]
)
def test_nothing_is_said_of_the_right_twins(name: str, said: Callable[[str], list[str]]) -> None:
    """What stands next to each wrong one has no cause."""
    assert [] == said(name)


def test_weights_that_a_backward_pass_computes_without_the_mask_are_said(
    bound: Callable[[str], Convention],
) -> None:
    """By the gradients that they give; where the same keys are hidden again, nothing."""
    wrong, of_queries, right = (
        gradient_effects(Caller(bound(name), lambda: True))
        for name in ("recomputed_unhidden", "recomputed_for_queries", "recomputed")
    )
    assert ("with padding=bool: hidden keys take part in the backward pass",) == tuple(
        each.text.partition(": it computes")[0] for each in wrong
    )
    assert ("with padding=bool: hidden keys have a part in dQ",) == tuple(
        each.text.partition(": for it")[0] for each in of_queries
    )
    assert () == right


def test_jumbled_rows_are_no_causal_rule(bound: Callable[[str], Convention]) -> None:
    """Several heads that are cut out of memory hide the last rows from the first by chance."""
    assert not bound("jumbled").hides_future
    assert bound("future_hidden").hides_future


def test_what_takes_long_on_many_keys_is_asked_no_thousand(
    caller: Callable[..., Caller],
) -> None:
    """Kills a diagnosis whose whole time goes into loops of Python over a thousand keys."""
    asked: list[int] = []

    def resting(seconds: float, problem: Problem) -> Answer:
        asked.append(problem.key.shape[1])
        time.sleep(seconds if asked[-1] >= MANY // FEWER else 0)
        return answer_of(Attention, problem)

    for seconds, most in ((2 * QUICK, MANY // FEWER), (0, MANY)):
        assert not [*values(caller(partial(resting, seconds)))]
        assert most == max(asked)
