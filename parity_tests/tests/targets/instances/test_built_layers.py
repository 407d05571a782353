"""A layer that is built already is measured itself: nothing is asked of a new one of its class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.checks.call_effects import MonitoredCandidate
from mha_parity.core.candidate import CandidateError
from mha_parity.core.options import Options
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from mha_parity.targets.convention_base.instance_calls import InstanceCalls
from subject_checks import SUBJECTS, check_subject


def built(name: str) -> InstanceCalls:
    """Return the convention that is bound to a layer of the subjects."""
    bound = bind(load.load(f"{SUBJECTS}/built_layers.py:{name}"))
    assert isinstance(bound, InstanceCalls)
    return bound


def test_no_new_layer_is_built_for_an_instance() -> None:
    """Cases, further calls, shrinking and diagnosis ask the layer and copies of it."""
    subject = load.load(f"{SUBJECTS}/built_layers.py:scaled")
    bound = bind(subject)
    before = type(subject).count
    verdict = check(MonitoredCandidate(bound), Options(cases=40, shrink=True, diagnose=True))
    assert type(subject).count == before
    assert "scale-none" == verdict.diagnosis[0].bug


@pytest.mark.parametrize("name", ["scaled", "wiped"])
def test_no_dropout_is_said_of_a_layer_that_has_none(name: str) -> None:
    """A wrong layer with dropout 0 fails, and neither a check nor a diagnosis speaks of dropout."""
    verdict = check_subject(f"built_layers.py:{name}", cases=60, diagnose=True)
    assert not verdict.holds
    assert "dropout-in-eval" not in {each.bug for each in verdict.diagnosis}
    assert not any("dropout" in each.name for each in verdict.checks)


def test_a_layer_that_drops_in_training_alone_passes() -> None:
    """Its dropout is checked: a copy of it in evaluation answers as the layer does."""
    verdict = check_subject("built_layers.py:drops", cases=40)
    assert verdict.holds, str(verdict)
    assert "dropout off" in {each.name for each in verdict.checks}


def test_a_layer_that_drops_in_evaluation_fails() -> None:
    """The same layer with dropout in evaluation is found."""
    assert not check_subject("built_layers.py:drops_always", cases=40).holds


def test_leftover_parameters_that_change_the_output_are_refused() -> None:
    """Norms of queries and keys are named, as in the refusal of a class that has them."""
    with pytest.raises(ValueError, match=r"`q_norm`, `k_norm` have no counterpart in torch's lay"):
        built("normed")


def test_leftover_parameters_without_effect_are_left_alone() -> None:
    """A Linear that the call does not read is named as left over, and the layer passes."""
    verdict = check_subject("built_layers.py:spare", cases=30)
    assert verdict.holds, str(verdict)
    assert "unread.weight" in verdict.notes[0]


def test_a_copy_has_the_attributes_of_the_layer_and_the_weights_of_the_problem() -> None:
    """Another problem of the layer's sizes gets the answer of the changed scale."""
    scaled, right = built("scaled"), built("right")
    case = right.plain_case().replace(heads_count=3, head_dim=8, dtype="float32")
    problem = make_problem(case)
    assert np.abs(scaled(problem).output - right(problem).output).max() > 1e-3
    assert scaled.instance is not None
    assert 1.0 == scaled.instance.called.scale


def test_other_sizes_are_not_asked() -> None:
    """No other layer answers in the place of one that cannot."""
    bound = built("right")
    problem = make_problem(bound.plain_case().replace(heads_count=2, head_dim=3))
    with pytest.raises(CandidateError, match="not asked: it is built with heads_count 3"):
        bound(problem)


def test_a_copy_that_calls_the_layer_itself_is_not_asked() -> None:
    """A function that was put into the layer computes with that layer's weights."""
    bound: Any = built("held")
    case = bound.own_weights.case(bound.plain_case())
    assert bound(bound.own_weights.problem(make_problem(case))).output.any()
    with pytest.raises(CandidateError, match="another w_q has no effect in a copy of the layer"):
        bound(make_problem(case.replace(bias="no")))


def test_a_layer_is_offered_no_lengths_beyond_its_own() -> None:
    """A right layer with a mask of 64 keys holds, and the report says the limit and the error."""
    verdict = check_subject("built_layers.py:short", cases=60)
    assert verdict.holds, str(verdict)
    assert any(
        each.startswith("not offered: more than 64 queries or keys (raised RuntimeError: The size")
        for each in verdict.notes
    )


@pytest.mark.parametrize("length", [3, 37, 100])
def test_the_limit_is_found_between_the_drawn_lengths(length: int) -> None:
    """It is exact, also where no drawn case has that length; longer cases become as long."""
    kind = load.load(f"{SUBJECTS}/built_layers.py:Causal")
    bound = bind(kind(24, 3, length))
    own = bound.own_weights
    assert own is not None
    assert length == own.longest
    case = own.case(bound.plain_case().replace(queries=500, keys=500))
    assert (length, length) == (case.queries, case.keys)
    assert isinstance(bound, InstanceCalls)
    assert bound.instance is not None
    assert "" == bound.instance.inert


def test_a_layer_that_is_short_and_wrong_fails() -> None:
    """Within its lengths it is judged as any other."""
    verdict = check_subject("built_layers.py:short_and_scaled", cases=60, diagnose=True)
    assert not verdict.holds
    assert "scale-none" == verdict.diagnosis[0].bug


@pytest.mark.parametrize("name", ["gap", "gap_and_short"])
def test_a_layer_that_raises_at_a_length_in_the_middle_fails(name: str) -> None:
    """It answers longer ones: that is no limit, whether or not it has one beyond."""
    own: Any = built(name).own_weights
    assert not own.limit
    verdict = check_subject(f"built_layers.py:{name}", cases=200)
    assert not verdict.holds
    assert any("9 is not served" in each.check_result.detail for each in verdict.failures)


@pytest.mark.parametrize(("name", "attn"), [("switched_on", "causal"), ("switched_off", "none")])
def test_a_switch_of_the_constructor_is_read_off_the_layer(name: str, attn: str) -> None:
    """A right layer is asked for the causal rule where it was built with it, and only there."""
    assert (attn,) == built(name).offer["attn"]
    verdict = check_subject(f"built_layers.py:{name}", cases=60)
    assert verdict.holds, str(verdict)


def test_a_layer_with_a_switch_and_a_wrong_scale_fails() -> None:
    """The causal rule that it was built with hides no other mistake."""
    assert not check_subject("built_layers.py:switched_and_scaled", cases=60).holds
