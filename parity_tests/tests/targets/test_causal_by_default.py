"""A function whose is_causal is True by default: small calls show what the switch does."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("causal_by_default.py", cases=60)


def test_a_right_one_passes() -> None:
    """Kills a call without a mask that leaves the default: the future was hidden there.

    It raises on a causal rule for S unlike L, which is said, and is judged there without one.
    """
    verdict = judged("attention")
    assert Outcome.PASS == verdict.outcome, verdict
    statuses = {each.name: each.status.value for each in verdict.parameters}
    assert "tried" == statuses["is_causal"], statuses


def test_a_switch_without_effect_is_no_pass() -> None:
    """One that is causal whatever is passed leaves the switch untried, and the run inconclusive."""
    verdict = judged("always_causal")
    assert Outcome.INCONCLUSIVE == verdict.outcome, verdict
    assert "no case passed `is_causal`" in verdict.sentence
