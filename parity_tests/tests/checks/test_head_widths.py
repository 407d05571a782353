"""Heads narrower than rows make them are judged where a constructor has a width for them."""

from __future__ import annotations

import pytest

from mha_parity.checks import value_widths
from mha_parity.checks.head_widths import NAME
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("head_widths.py", cases=40, dtypes=("float64",))


@pytest.mark.parametrize("name", ["Packed", "Optional", "InTotal", "Configured"])
def test_right_ones_pass(name: str) -> None:
    """`dim_head`, widths that are None by default, one of all heads, one of a configuration."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert any(NAME == row.name and row.cases for row in verdict.checks)
    assert "not tried" not in verdict.sentence


@pytest.mark.parametrize(
    ("name", "passed"),
    [
        ("ScaledByRows", "`dim_head` = 4"), ("InTotalScaledByRows", "`attn_dim`"),
        ("ConfiguredByRows", "`head_dim` = 4"),
    ],
)  # fmt: skip
def test_a_scale_by_the_width_of_rows_fails(name: str, passed: str) -> None:
    """Heads of E / H channels hide it: kills equal widths as the only ones that are tried."""
    verdict = judged(name, max_failures=0, diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict
    assert {NAME} == {each.check_result.check for each in verdict.failures}
    assert passed in verdict.diagnosis[0].title
    assert "scale by the width that heads have" in verdict.diagnosis[0].remedy


def test_a_scale_by_an_optional_width_of_values_fails() -> None:
    """Each of two widths that are None by default is passed alone."""
    verdict = judged("OptionalScaledByValues", max_failures=0)
    assert Outcome.FAIL is verdict.outcome, verdict
    assert {NAME, value_widths.NAME} == {e.check_result.check for e in verdict.failures}


def test_heads_of_another_width_that_are_not_served_are_no_failure() -> None:
    """What raises of them by mistake is said, and what refuses them is not."""
    verdict = judged("Uncut")
    assert Outcome.PASS is verdict.outcome, verdict
    assert any("heads of another width are not served" in note for note in verdict.notes)
    verdict = judged("OfRows")
    assert Outcome.PASS is verdict.outcome, verdict
    assert not any("another width" in note for note in verdict.notes), verdict.notes


def test_a_layer_without_an_output_projection_is_not_asked() -> None:
    """Its output would be narrower, too. Kills a comparison of outputs of unlike widths."""
    verdict = judged("WithoutOutput")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert not [row for row in verdict.checks if NAME == row.name and row.cases]
