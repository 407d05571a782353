"""A causal switch that is refused with keys of their own is judged in self-attention."""

from __future__ import annotations

import pytest

from mha_parity.core.parameters import Status
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("causal_in_self.py", cases=60, dtypes=("float64",))


def test_both_kinds_of_attention_are_judged() -> None:
    """The rule with padding and without in self-attention, other keys without the rule."""
    verdict = judged("OfBoth")
    assert Outcome.PASS is verdict.outcome, verdict
    (mask,) = (each for each in verdict.parameters if each.name == "mask")
    assert Status.TRIED is mask.status
    assert "read in self-attention alone" in mask.meaning
    passed = {(row.axis, row.value) for row in verdict.features if row.status == "pass"}
    assert {("attn", "causal"), ("inputs", "cross"), ("inputs", "self")} <= passed


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("masked_rows", ["none", "some"])
def test_each_case_can_be_asked_with_its_masks(masked_rows: str, seed: int) -> None:
    """Kills a rule that one small call settles, or that is not asked again without its padding."""
    both = (("attn", "none"), ("attn", "causal"), ("padding", "lengths"))
    asked = (*both, ("masked_rows", masked_rows))
    verdict = judged("OfBoth", seed=seed, features=asked)
    assert "60 of 60 cases" in verdict.sentence


def test_a_rule_that_begins_late_fails_in_self_attention() -> None:
    """Kills a switch that is left at False since one call with it raised."""
    verdict = judged("OfBothFromTheNext", max_failures=3)
    assert Outcome.FAIL is verdict.outcome
    assert {("causal", "self")} == {(f.case.attn, f.case.inputs) for f in verdict.failures}
