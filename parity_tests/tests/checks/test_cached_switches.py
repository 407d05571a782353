"""A cache of a layer that is built for the causal rule is judged with the rule switched on."""

from __future__ import annotations

from mha_parity.checks.cached_rows import NAME, RULE, UNSEEN
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("cached_switches.py", cases=40, dtypes=("float64",))


def test_a_rule_that_counts_the_rows_before_holds() -> None:
    """Rows of a call see those of earlier calls, with the rule as without."""
    verdict = judged("Switched")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert any(NAME == row.name and row.cases for row in verdict.checks)


def test_a_rule_that_counts_the_rows_of_the_call_alone_fails() -> None:
    """Kills a cache that is asked without the rule alone, where it is right."""
    verdict = judged("SwitchedTopLeft", diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert {NAME} == {each.check_result.check for each in verdict.failures}
    said = [each.check_result.detail for each in verdict.failures]
    assert all(RULE in each for each in said), said
    assert UNSEEN in verdict.diagnosis[0].title, verdict.diagnosis
