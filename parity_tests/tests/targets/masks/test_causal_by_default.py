"""A causal switch that is True by default: small calls show what it does, alone and with a mask."""

from __future__ import annotations

from mha_parity.checks import cached_rows
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


def test_no_row_is_not_asked_where_it_raises() -> None:
    """Kills an offer of empty axes by samples alone, where self-attention draws no row."""
    verdict = judged("of_any_rows", dtypes=("float64",))
    assert Outcome.PASS is verdict.outcome, verdict
    asked = {(each.axis, each.value) for each in verdict.features if each.status == "pass"}
    assert ("size", "empty") not in asked


def test_a_switch_without_effect_is_no_pass() -> None:
    """One that is causal whatever is passed leaves the switch untried, and the run inconclusive."""
    verdict = judged("always_causal")
    assert Outcome.INCONCLUSIVE == verdict.outcome, verdict
    assert "no case passed `is_causal`" in verdict.sentence


def test_a_layer_that_hides_by_both_passes() -> None:
    """Padding and the causal rule are passed together."""
    verdict = judged("BothHide")
    assert Outcome.PASS == verdict.outcome, verdict
    assert "hides nothing" not in " ".join(verdict.notes)


def test_padding_in_the_place_of_the_causal_rule_fails() -> None:
    """No call of it hides both: they were passed one by one alone, and a note said so."""
    verdict = judged("PaddingHidesAlone", diagnose=True)
    assert Outcome.FAIL == verdict.outcome, verdict
    assert ["masks-last-wins"] == [each.bug for each in verdict.diagnosis]


def test_a_number_is_no_switch() -> None:
    """`causal_offset=None` hides nothing, and 0 and 1 both do. Kills False as what None is."""
    verdict = judged("of_an_offset")
    assert Outcome.INCONCLUSIVE == verdict.outcome, verdict
    assert "no case passed `causal_offset`" in verdict.sentence


def test_a_cache_is_asked_by_the_rule_of_a_call_without_a_mask() -> None:
    """Kills calls with a cache that pass a mask of nothing, where callers pass none."""
    right = judged("CachedByDefault", dtypes=("float64",))
    assert Outcome.PASS is right.outcome, right
    wrong = judged("CachedFromTheFirst", dtypes=("float64",), max_failures=0)
    assert Outcome.FAIL is wrong.outcome, wrong
    assert {cached_rows.NAME} == {each.check_result.check for each in wrong.failures}
