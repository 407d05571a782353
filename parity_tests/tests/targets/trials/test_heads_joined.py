"""Outputs that join the heads of inputs by heads, and the width of a head that a default says."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("heads_joined.py", cases=40, dtypes=("float64", "float32"))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", ["of_samples", "of_one"])
def test_joined_heads_are_read_and_differentiated(name: str, *, grad: bool) -> None:
    """Of one sequence too: kills a refusal of (H, L, D), and gradients of another shape."""
    right = judged(name, grad=grad)
    assert Outcome.PASS is right.outcome, right
    (row,) = (each for each in right.features if ("heads", "many") == (each.axis, each.value))
    assert row.cases


def test_heads_that_are_joined_wrongly_fail() -> None:
    """Kills an output that is read in whatever order makes it right."""
    wrong = judged("of_one_unmoved", diagnose=True)
    assert Outcome.FAIL is wrong.outcome, wrong
    assert "merge-no-transpose" == wrong.diagnosis[0].bug, wrong.diagnosis


def test_a_default_says_the_width_of_a_head() -> None:
    """8 heads of 64 are 512: kills a width of 64 that stays beside another number of heads."""
    right = judged("WidthByDefault")
    assert Outcome.PASS is right.outcome, right
    assert Outcome.FAIL is judged("WidthByDefaultUnscaled", fail_fast=True).outcome
