"""Weights are asked for by the switches of a call, and torch's masks of three axes are passed."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from mha_parity.core.case import parse
from mha_parity.core.verdict import Outcome
from mha_parity.targets.calls.attention_weight_axes import documented_weights
from mha_parity.targets.convention_base.returned_weights import weights_switches
from subject_checks import checks_of

FILE = "weights_on_request.py"
judged = checks_of(FILE, cases=40, dtypes=("float64",))
judged_scores = checks_of("returned_scores.py", cases=40, dtypes=("float64",))
judged_axes = checks_of("documented_weights.py", cases=40, dtypes=("float64",))

judged_by_names = checks_of("sdpa_with_weights.py", cases=40, dtypes=("float64",))


@pytest.mark.parametrize("name", ["OnRequest", "TwoAxes"])
def test_weights_are_asked_for(name: str) -> None:
    """Both forms of weights are drawn, no switch is left unpassed, and the right layer passes."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict
    drawn = {row.value for row in verdict.features if row.axis == "weights" and row.cases}
    assert {"none", "averaged", "per_head"} == drawn
    assert "not tried" not in verdict.sentence
    masks = {row.value for row in verdict.features if row.axis == "attn" and row.cases}
    assert ("bool3d" in masks) is (name == "OnRequest")


def test_a_default_that_returns_weights_of_another_form_is_judged() -> None:
    """Where weights are not offered, the call is made as it is by default, and fails."""
    verdict = judged("WrongByDefault")
    assert Outcome.FAIL == verdict.outcome, verdict
    assert {"none"} == {
        row.value for row in verdict.features if row.axis == "weights" and row.cases
    }


def test_scores_are_no_weights() -> None:
    """A switch that returns what is before the softmax is not passed."""
    assert Outcome.PASS == judged("ReturnsScores").outcome


@pytest.mark.parametrize(("target", "name"), [("Logits", "qk"), ("with_log_weights", "logw")])
def test_scores_by_name_are_no_weights_either(target: str, name: str) -> None:
    """What is named as scores, or logarithms, is not judged as weights, and the reason says so."""
    verdict = judged_scores(target)
    assert Outcome.PASS == verdict.outcome, verdict
    (row,) = [r for r in verdict.features if (r.axis, r.value) == ("weights", "per_head")]
    assert f"what comes with the output is `{name}`: no weights" in row.reason


@pytest.mark.parametrize(
    "name", ["with_normaliser", "with_normaliser_as_column", "with_normaliser_by_rows"]
)
def test_one_number_a_row_is_said_not_to_be_judged(name: str) -> None:
    """A kernel's log-sum-exp is no torch result: it may be wrong, and the report says so."""
    verdict = judged_scores(name)
    assert Outcome.PASS == verdict.outcome, verdict
    (row,) = [r for r in verdict.features if (r.axis, r.value) == ("weights", "per_head")]
    assert (
        "one number a row comes with the output, as a log-sum-exp, and is not judged" == row.reason
    )


def test_scores_that_are_named_weights_are_wrong() -> None:
    """The same array under a name of weights is judged as weights."""
    verdict = judged_scores("LogitsForWeights")
    assert Outcome.FAIL == verdict.outcome, verdict
    assert {"weights"} == {failure.check_result.check for failure in verdict.failures}


@pytest.mark.parametrize("name", ["BiasForgotten", "HeadsFirst"])
def test_what_is_wrong_only_when_asked_for_is_seen(name: str) -> None:
    """The output beside weights, and a mask of a sample and head, are held to torch's.

    Padding is said by such a mask too.
    """
    verdict = judged(name)
    assert Outcome.FAIL == verdict.outcome, verdict
    failing = [each.case for each in verdict.failures]
    assert failing
    if name == "BiasForgotten":
        assert all(case.weights != "none" for case in failing)
    else:
        assert all(case.attn == "bool3d" or case.padding != "none" for case in failing)


def test_switches_are_known_by_name_and_default() -> None:
    """What differs from the default is passed; other names, and what is no switch, are left."""

    def call(
        query: Any, need_weights: bool = True, average_attn_weights: bool = False,
        output_attentions: None = None, return_dict: bool = True, num_weights: int = 3,
        return_scores: bool = False, return_only_weights: bool = False,
    ) -> Any:  # fmt: skip
        """Take many switches."""

    named = inspect.signature(call).parameters.values()
    case = parse("mha-N2-L5-S7-H3-D4-cross-bias-weights-float32-s81")
    for weights, expected in (
        ("none", {"need_weights": False}),
        ("averaged", {"average_attn_weights": True, "output_attentions": True}),
        ("per_head", {"output_attentions": True}),
    ):
        found = weights_switches(named, case.replace(weights=weights), ["averaged"])
        assert expected == found
    assert {} == weights_switches(named, case.replace(weights="none"), [])


def test_one_sample_without_its_axis_is_tried_with_weights_too() -> None:
    """Its output is right and its weights are none of (H, L, S): kills a trial of the output."""
    verdict = judged("StackedBehindSamples")
    assert Outcome.PASS == verdict.outcome, verdict
    (row,) = (r for r in verdict.features if (r.axis, r.value) == ("layout", "unbatched"))
    assert "what comes with the output has shape (1, 5, 2, 5)" == row.reason
    assert any("per_head" == each.value and each.cases for each in verdict.features)


@pytest.mark.parametrize(
    ("target", "axes"), [("HeadsFirst", "(H, N, L, S)"), ("KeysFirst", "(H, N, S, L)")]
)
def test_weights_are_read_with_the_axes_that_are_documented(target: str, axes: str) -> None:
    """They are judged, and a note says how they were read."""
    verdict = judged_axes(target)
    assert Outcome.PASS == verdict.outcome, verdict
    assert [each for each in verdict.notes if f"their documented axes, {axes}" in each]
    assert {row.value for row in verdict.features if row.axis == "weights" and row.cases} >= {
        "per_head"
    }


@pytest.mark.parametrize("target", ["HeadsFirstHalved", "KeysFirstUndocumented"])
def test_weights_that_are_not_as_documented_fail(target: str) -> None:
    """Other values fail, and so does a shape that is neither torch's nor the documented one."""
    verdict = judged_axes(target)
    assert {"weights"} == {each.check_result.check for each in verdict.failures}


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("weights (N, H, L, S)", ""),
        ("attn: (B, L, H, S)", "NLHS"),
        ("return_weights: also return (heads, batch, L, S).", "HNLS"),
        ("weights [batch, num_heads, key_len, query_len]", "NHSL"),
        ("attention maps (N, T, T, heads)", "NLSH"),
        ("weights (H, B, N, N)", "HNLS"),
        ("attention weights (heads, batch, S, S)", "HNLS"),
        ("mask of shape (H, N, L, S)", ""),
        ("weights (H, N, L, S), averaged weights (N, H, L, S)", ""),
        ("weights (H, N, L)", ""),
    ],
)
def test_axes_are_read_from_documentation(text: str, axes: str) -> None:
    """Each of four axes once, of weights, and not as torch has them."""

    def documented() -> None: ...

    documented.__doc__ = text
    assert axes == documented_weights(documented)


@pytest.mark.parametrize(("name", "offered"), [("own", "per_head"), ("means", "averaged")])
def test_weights_are_asked_of_functions_with_torch_s_names(name: str, offered: str) -> None:
    """By a switch beside the names of scaled_dot_product_attention, per head or as their mean."""
    verdict = judged_by_names(name)
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    rows = {row.value: row.status for row in verdict.features if row.axis == "weights"}
    assert "not offered" != rows[offered]
    assert "not tried" not in verdict.sentence


def test_weights_without_masks_fail() -> None:
    """The output is right. Kills a switch that is left alone where the names are torch's."""
    verdict = judged_by_names("unmasked")
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert {"weights"} == {each.check_result.check for each in verdict.failures}
