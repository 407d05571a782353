"""A function with torch's is_causal whose default is True is asked with is_causal=False as well."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("causal_by_default.py", cases=60)


def test_a_right_one_passes() -> None:
    """Kills a call without a mask that leaves the default: the future was hidden there."""
    verdict = judged("attention")
    assert Outcome.PASS == verdict.outcome, verdict
    statuses = {each.name: each.status.value for each in verdict.parameters}
    assert "tried" == statuses["is_causal"], statuses


def test_one_that_is_causal_whatever_is_passed_fails() -> None:
    """is_causal=False has to show all keys."""
    assert Outcome.FAIL == judged("always_causal").outcome
