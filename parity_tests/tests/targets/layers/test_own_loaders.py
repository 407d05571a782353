"""Where a layer takes over torch's weights by a method of its own, it is judged by that."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.calls.weights_from_torch import torch_taker
from subject_checks import checks_of

judged = checks_of("own_loaders.py", cases=40, dtypes=("float64", "float32"))


@pytest.mark.parametrize("name", ["TakesArrays", "TakesStates", "MadeOfTorchs", "TakesBiases"])
def test_right_ones_pass_with_the_weights_that_they_take(name: str) -> None:
    """Arrays by torch's names, a state dict, a class method, or a layer that has all biases."""
    verdict = judged(name)
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed), verdict


@pytest.mark.parametrize("name", ["TakesArraysAsTheyAre", "MadeOfTorchsShifted"])
def test_a_wrong_method_fails(name: str) -> None:
    """Its forward pass is right for weights that are set from outside: the method is what fails."""
    assert Outcome.FAIL == judged(name, fail_fast=True).outcome


@pytest.mark.parametrize("method", [dict.update, type, staticmethod(dict.update), None])
def test_a_method_without_a_signature_takes_over_nothing(method: object) -> None:
    """What Python cannot look into, as a method of C, is no error and not called."""
    assert torch_taker(type("Layer", (), {"load_weights": method})) is None
