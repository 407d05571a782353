"""A switch that is named after what rows may see hides where it is off."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("future_switch.py", cases=30, dtypes=("float64",))


def test_the_future_is_hidden_where_it_is_off() -> None:
    """Kills True of each switch of the causal rule that hides: plain cases had the rule."""
    verdict = judged("Looks")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert {"none", "causal"} <= {row.value for row in verdict.features if row.axis == "attn"}


def test_the_opposite_fails() -> None:
    """By its name the switch is held to its meaning."""
    verdict = judged("LooksOtherwise")
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
