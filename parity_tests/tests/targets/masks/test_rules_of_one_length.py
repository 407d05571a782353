"""A causal rule that is right at one length alone makes a layer one of that length."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("rules_of_one_length.py", cases=40, dtypes=("float64", "float32"))
ONE_LENGTH = "it takes one length alone"


def test_an_uncut_rule_is_asked_at_its_length() -> None:
    """Kills a switch that no call is answered with, which made the verdict inconclusive."""
    right = judged("Uncut")
    assert Outcome.PASS is right.outcome, right
    (row,) = (each for each in right.features if ("attn", "causal") == (each.axis, each.value))
    assert row.cases
    assert any(ONE_LENGTH in note for note in right.notes), right.notes


def test_a_wrong_rule_of_one_length_is_no_right_one() -> None:
    """Kills lengths that are taken for the reason why a rule is wrong."""
    assert Outcome.PASS is not judged("UncutBehind").outcome


def test_a_rule_that_is_cut_leaves_all_lengths() -> None:
    """Kills a layer that is asked at one length wherever it has a switch."""
    right = judged("Cut")
    assert Outcome.PASS is right.outcome, right
    assert not any(ONE_LENGTH in note for note in right.notes), right.notes
