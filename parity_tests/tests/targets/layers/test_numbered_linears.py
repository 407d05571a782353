"""Three arrays that numbers alone name are q, kv and out where the second is twice the others."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("numbered_linears.py", cases=30, dtypes=("float64",))


def test_keys_and_values_in_the_second_are_judged() -> None:
    """Kills a refusal of what "does not fit a width of 24": it was taken for the keys alone."""
    verdict = judged("QueryThenBoth")
    assert Outcome.PASS is verdict.outcome, verdict.sentence


def test_keys_that_are_the_values_fail() -> None:
    """The same layer is wrong where its code is."""
    verdict = judged("LateKeysExchanged")
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert all(each.case.keys > 8 for each in verdict.failures)
