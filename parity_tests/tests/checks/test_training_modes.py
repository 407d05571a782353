"""What a layer computes in training, with the causal rule of its default, and after a reset."""

from __future__ import annotations

import pytest

from mha_parity.checks import cached_rows, dropout
from mha_parity.checks.cached_rows import FORGOTTEN
from mha_parity.core.parameters import Status
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("training_modes.py", cases=20, dtypes=("float64",))


@pytest.mark.parametrize("name", ["AsInEvaluation", "DropsByDefault", "CausalByDefault", "Forgets"])
def test_right_ones_pass(name: str) -> None:
    """Dropout is drawn, a cache moves the causal rule, and a reset begins a sequence."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict
    assert "passed without masks" not in verdict.sentence


@pytest.mark.parametrize(
    ("name", "check", "said"),
    [
        ("UnscaledWithoutDropout", "statelessness", "in the answer in training mode."),
        ("Unscaled", dropout.OTHER_WEIGHTS, "times those without dropout, and by no common factor"),
        ("CausalFromTheFirstKey", cached_rows.NAME, "asked with the cache of those before it"),
        ("ForgetsInPart", cached_rows.NAME, FORGOTTEN),
    ],
)
def test_wrong_ones_fail_by_their_check(name: str, check: str, said: str) -> None:
    """Each is right in the calls that are made in evaluation, without the rule, or of a new object.

    Kills a training mode that is entered for dropout alone, a causal switch that is passed False
    for a single row, and one sequence for an object that keeps its cache.
    """
    verdict = judged(name, diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict
    found = [each.check_result for each in verdict.failures if each.check_result.check == check]
    assert said in found[0].detail
    assert all(each.bug is None for each in verdict.diagnosis)


@pytest.mark.parametrize("name", ["UnscaledWithoutDropout", "Unscaled"])
def test_the_remedy_of_another_answer_in_training_is_not_that_of_a_state(name: str) -> None:
    """Nothing is kept from call to call: the weights should be those of evaluation."""
    assert dropout.AS_IN_EVALUATION == judged(name, diagnose=True).diagnosis[0].remedy


def test_masks_that_are_not_asked_with_a_cache_are_said() -> None:
    """Both are tried, though never together."""
    verdict = judged("Masked")
    assert not verdict.failures
    assert "passed without masks: past_kv" in verdict.sentence
    tried = {each.name for each in verdict.parameters if each.status is Status.TRIED}
    assert {"mask", "past_kv"} <= tried
