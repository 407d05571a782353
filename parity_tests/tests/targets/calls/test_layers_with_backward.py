"""Gradients of NumPy layers are those of their own `backward`, or of that of their tensors."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.run.verdict_limits import WITHOUT_GRADIENTS
from mha_parity.targets.bind import bind
from subject_checks import checks_of, load_subject

judged = checks_of("layers_with_backward.py", cases=40, grad=True, dtypes=("float64",))


@pytest.mark.parametrize("name", [
    "ByHand", "OfTensors", "OfRequiredMemory", "OfProjectedRows", "Registered", "OfThreeInputs",
])  # fmt: skip
def test_right_ones_pass_with_their_gradients(name: str) -> None:
    """Of inputs as they are returned or held, of weights where the layer leaves them.

    Kills gradients of masks that are demanded of a `backward` which returns those of rows.
    """
    verdict = judged(name)
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed), verdict


@pytest.mark.parametrize(("name", "said"), [
    ("BiasTwice", "b.q"), ("OfTensorsKeysHalved", "k"), ("OfRequiredMemoryHalved", "key"),
    ("OfThreeInputsKeysHalved", "dk"), ("OfProjectedRowsKeysHalved", "dk"),
    ("OutBiasAlone", "out_proj.bias"),
])  # fmt: skip
def test_wrong_ones_fail_in_gradients_alone(name: str, said: str) -> None:
    """Kills gradients that are read from another array, or not asked.

    The bugs of the catalogue, whose layers have all biases or none, are tried on the output's too.
    """
    verdict = judged(name, diagnose=True)
    assert Outcome.FAIL == verdict.outcome
    checks = {each.check_result.check.partition(" of ")[0] for each in verdict.failures}
    assert {"gradient"} == checks
    assert said.rpartition(".")[2] in verdict.diagnosis[0].title.lower()


@pytest.mark.parametrize(
    ("name", "outcome"), [("ByHand", Outcome.PASS), ("BiasTwice", Outcome.FAIL)]
)
def test_a_layer_with_a_backward_is_asked_for_gradients(name: str, outcome: Outcome) -> None:
    """Without --grad, in every dtype: arrays that it allocated in float64 are rounded to that."""
    verdict = judged(name, grad=False, dtypes=(), cases=24)
    assert outcome is verdict.outcome
    assert (
        f"gradients were judged too: `{name}` has its own `backward`; {WITHOUT_GRADIENTS}."
        in verdict.notes
    )
    dtypes = {row.value for row in verdict.features if row.axis == "dtype" and row.cases}
    assert {"float64", "float32", "float16"} == dtypes


def test_a_backward_that_returns_too_little_is_not_offered() -> None:
    """The reason names the inputs without a gradient; the output is judged all the same."""
    bound = bind(load_subject("layers_with_backward.py:OfTheQueryAlone"))
    assert ("no",) == bound.offer["gradients"]
    reason = bound.reasons["gradients", "yes"]
    assert "`backward` returns no gradient for each of query and key" in reason
