"""A causal switch beside the rows of a textbook class is no mask: it is found by small calls."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("switched_textbook.py", cases=40, dtypes=("float64",))


def test_the_switch_is_judged_on_and_off() -> None:
    """Kills a verdict that no case passed the switch: an array had been passed for a mask."""
    verdict = judged("MultiHeadAttention")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    passed = {row.value for row in verdict.features if row.axis == "attn"}
    assert {"none", "causal"} <= passed


def test_a_rule_that_begins_late_fails_where_it_is_on() -> None:
    """Without the rule the layer is right."""
    verdict = judged("SeesTheNext")
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert {"causal"} == {each.case.attn for each in verdict.failures}
