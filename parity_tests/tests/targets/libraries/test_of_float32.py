"""Layers of NumPy that are of float32 by their weights, and what exceptions of Keras say."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.calls.crash_report import crash
from mha_parity.targets.features_offered.float32_targets import (
    DOCUMENTED,
    OF_WEIGHTS,
    documents_float32,
)
from subject_checks import checks_of

judged = checks_of("float32_weights.py", cases=40)
IN_BOLD = (
    "Exception encountered when calling L.call().\n\n\x1b[1mshape '[2, 5]' is invalid\x1b[0m\n\n"
    "Arguments received by L.call():\n  • x=None"
)


def test_float64_is_no_promise_of_weights_in_float32() -> None:
    """NumPy draws float64: kills a red verdict on a layer that makes them otherwise on purpose."""
    right = judged("OfFloat32")
    assert Outcome.PASS is right.outcome, right
    (row,) = (each for each in right.features if each.value == "float64")
    assert ("not offered", OF_WEIGHTS) == (row.status, row.reason)
    assert Outcome.FAIL is judged("OfFloat32Doubled", fail_fast=True).outcome


def test_a_softmax_of_half_the_digits_is_a_finding() -> None:
    """Of a layer whose weights are of float64: kills float64 that is left out wherever it fails."""
    wrong = judged("OfFloat64", diagnose=True)
    assert Outcome.FAIL is wrong.outcome, wrong
    assert {"float64"} == {each.check_result.case.dtype for each in wrong.failures}


def test_keras_says_its_reason_in_bold() -> None:
    """Kills a sentence that names the layer, which is known, in place of what was raised."""
    assert "raised RuntimeError: shape '[2, 5]' is invalid" == str(crash(RuntimeError(IN_BOLD)))


@pytest.mark.parametrize(
    ("text", "documented"),
    [
        (
            "Scores and softmax are ALWAYS computed in float32, for bfloat16 and float64.",
            True,
        ),
        ("Softmax is done in float32.", True),
        ("Its arithmetic is float32 whatever comes in.", True),
        ("Inputs in float64 have results of float32 accuracy.", True),
        ("Half inputs are accumulated in fp32.", False),
        ("The softmax is computed in float32 for float16 inputs, whatever the rest is in.", True),
        ("Everything is computed in the dtype of x.", False),
        ("Weights are float32. Scores are computed in x's dtype.", False),
    ],
)
def test_documented_float32_is_read(text: str, *, documented: bool) -> None:
    """In one sentence: of half precision alone it says nothing of float64."""

    def subject() -> None: ...

    subject.__doc__ = text
    assert documented is documents_float32(subject)


def test_float64_is_left_out_where_float32_is_documented() -> None:
    """Kills a red verdict on what its documentation says; without the sentence it is a finding."""
    right = judged("Documented")
    assert Outcome.PASS is right.outcome, right
    (row,) = (each for each in right.features if each.value == "float64")
    assert DOCUMENTED == row.reason
