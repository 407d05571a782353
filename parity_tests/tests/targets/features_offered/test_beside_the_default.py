"""What is wrong beside the calls that come to mind first is asked too, or said to be open."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.run.verdict_limits import WITHOUT_GRADIENTS
from subject_checks import checks_of

judged = checks_of("beside_the_default.py", cases=30)


@pytest.mark.parametrize(
    ("name", "outcome", "asked"),
    [
        ("DropsByConfig", Outcome.FAIL, True),
        ("DropsInTraining", Outcome.PASS, True),
        ("NoDropout", Outcome.PASS, False),
    ],
)
def test_dropout_of_a_configuration_is_asked_for(name: str, outcome: Outcome, asked: bool) -> None:
    """A layer whose configuration sets dropout is built with it; of another nothing is claimed."""
    verdict = judged(name)
    assert outcome is verdict.outcome
    assert asked == any(row.name == "dropout off" for row in verdict.checks)


def test_an_input_that_nearly_is_the_keys_leaves_the_run_open() -> None:
    """What may be left out and nearly gives attention where it is passed is said in a sentence."""
    verdict = judged("ForgetsABias")
    assert Outcome.INCONCLUSIVE is verdict.outcome
    assert "`memory` is an input of its own" in verdict.sentence
    assert "only correlates with attention over it by 0." in verdict.sentence


@pytest.mark.repeats(6)
@pytest.mark.parametrize(
    ("name", "outcome", "why"),
    [
        ("backward_wrong", Outcome.FAIL, "`_Attend` has its own backward pass"),
        ("backward_right", Outcome.PASS, "`_Attend` has its own backward pass"),
        ("normaliser_outside", Outcome.FAIL, "`no_grad` takes numbers out of autograd's graph"),
        ("normaliser_decorated", Outcome.FAIL, "`no_grad` takes numbers out of autograd's graph"),
        ("keys_by_data", Outcome.FAIL, "`data` takes numbers out of autograd's graph"),
        ("in_tiles", Outcome.PASS, "`no_grad` takes numbers out of autograd's graph"),
        ("maximum_outside", Outcome.PASS, "`detach` takes numbers out of autograd's graph"),
    ],
)
def test_gradients_of_its_own_are_judged_unasked(name: str, outcome: Outcome, why: str) -> None:
    """Gradients are judged where the target decides them, and the verdict says so."""
    verdict = judged(name)
    assert outcome is verdict.outcome
    wrong = any(row.name.startswith("gradient") and row.failed for row in verdict.checks)
    assert wrong is (outcome is Outcome.FAIL)
    assert f"gradients were judged too: {why}; {WITHOUT_GRADIENTS}." in verdict.notes
    assert Outcome.PASS is judged(name, features=(("gradients", "no"),)).outcome


def test_heads_projected_one_by_one_are_right() -> None:
    """An output projection for each head, of whatever plural, is the columns of torch's."""
    assert Outcome.PASS is judged("HeadsSummed").outcome


def test_samples_that_are_mixed_do_not_hide_the_axis() -> None:
    """A layer that is right for one sample along the first axis is judged along that axis."""
    verdict = judged("MergedAcrossSamples", diagnose=True, shrink=True)
    assert Outcome.FAIL is verdict.outcome
    assert {"sequence_first"} == {
        r.value for r in verdict.features if r.axis == "layout" and r.cases
    }
    assert "multiplied with 1" not in "".join(each.title for each in verdict.diagnosis)
