"""A mask that is asked whether it is true is a switch of the causal rule."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("mask_flags.py", cases=40, dtypes=("float64",))


@pytest.mark.parametrize("name", ["Flagged", "flagged"])
def test_right_ones_pass_with_the_rule_and_without(name: str) -> None:
    """Of torch and of NumPy, which refuse arrays in other words; kills a mask that is untried."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict
    causal = {row.value: row.cases for row in verdict.features if row.axis == "attn"}
    assert causal["causal"] > 0
    assert causal["none"] > 0
    assert any("`mask`: True hides the keys behind a query" in note for note in verdict.notes)


def test_a_rule_that_begins_late_fails() -> None:
    """It shows in the cases with the rule alone."""
    verdict = judged("FlaggedFromTheNext", max_failures=1)
    assert Outcome.FAIL is verdict.outcome
    assert {"causal"} == {each.case.attn for each in verdict.failures}
