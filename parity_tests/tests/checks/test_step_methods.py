"""Methods of a layer that take one row more are asked row by row, with the rows before them."""

from __future__ import annotations

import pytest

from mha_parity.checks import cached_rows
from mha_parity.core.verdict import Outcome
from mha_parity.targets.caches.step_methods import (
    OF_MORE,
    ROW_BY_ROW,
    UNTRIED,
    step_methods,
)
from mha_parity.targets.method_targets import BY_STEP
from subject_checks import checks_of, load_subject

judged = checks_of("step_methods.py", cases=40, dtypes=("float64",))


@pytest.mark.parametrize(
    ("name", "method"), [("Steps", "step"), ("Decodes", "decode_one"), ("InChunks", "step")]
)
def test_right_steps_hold_and_are_asked(name: str, method: str) -> None:
    """With an axis of rows and without: kills a method that the verdict says nothing of."""
    right = judged(name)
    assert Outcome.PASS is right.outcome, right
    assert ROW_BY_ROW.format(method) in right.notes
    assert any(cached_rows.NAME == row.name and row.cases for row in right.checks)


@pytest.mark.parametrize("name", ["LastThree", "KeepsValues", "FixedSizes", "InChunksFromTheFirst"])
def test_wrong_steps_fail_where_forward_is_right(name: str) -> None:
    """Kills a green verdict on a layer whose calls are right, and whose steps are not."""
    wrong = judged(name)
    assert Outcome.FAIL is wrong.outcome, wrong
    assert {cached_rows.NAME} == {each.check_result.check for each in wrong.failures}


def test_what_is_no_step_of_a_sequence_is_said() -> None:
    """It is no finding; a step of gradient descent is not even tried."""
    other = judged("Other")
    assert Outcome.PASS is other.outcome, other
    assert UNTRIED.format("step") in other.notes
    assert [] == list(step_methods(load_subject("step_methods.py:Descends")))
    assert not any("`step`" in note for note in judged("Descends").notes)


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("OfGivenCache", Outcome.PASS),
        ("OfOptionalCache", Outcome.PASS),
        ("OfGivenCacheByOtherHeads", Outcome.FAIL),
    ],
)
def test_a_cache_that_a_step_takes_and_returns_is_passed_on(name: str, outcome: Outcome) -> None:
    """Of two sequences alternately, each with its own; kills one that begins anew in each call."""
    verdict = judged(name)
    assert outcome is verdict.outcome, verdict.sentence
    assert ROW_BY_ROW.format("step") in verdict.notes
    assert {cached_rows.NAME} >= {each.check_result.check for each in verdict.failures}


def test_a_step_of_further_arguments_is_said_to_be_judged_by_itself() -> None:
    """Kills a method with a cache that no word says is untried; by itself its cache is asked."""
    assert OF_MORE.format("step", "StepsWithCache") in judged("StepsWithCache").notes
    alone = judged("StepsWithCache.step")
    assert "`cache`: takes what a call on the rows before returned" in " ".join(alone.notes)


def test_a_class_without_a_call_is_called_by_its_step() -> None:
    """Kills a refusal that asks for the name of the one method that there is."""
    right = judged("StepsAlone")
    assert Outcome.PASS is right.outcome, right
    assert BY_STEP.format("step") in right.notes
    assert Outcome.FAIL is judged("StepsAloneUnscaled", fail_fast=True).outcome
