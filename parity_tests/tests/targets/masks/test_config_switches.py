"""A causal switch that a layer reads of its configuration is asked with both values."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("config_switch.py", cases=80, dtypes=("float64",))


def test_the_rule_of_a_configuration_is_judged() -> None:
    """It is passed with and without padding, and the right one holds with both."""
    verdict = judged("Configured")
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed), verdict
    (row,) = (r for r in verdict.features if (r.axis, r.value) == ("attn", "causal"))
    assert ("pass", True) == (row.status, row.cases > 0)


def test_a_rule_that_padding_drops_fails_with_both_alone() -> None:
    """Without the switch, or without padding, the wrong one is right: it passed."""
    verdict = judged("ConfiguredDropped")
    assert Outcome.FAIL == verdict.outcome
    wrong = [each.case for each in verdict.failures if each.check_result.check == "output"]
    assert {("causal", True)} == {(each.attn, each.padding != "none") for each in wrong}


def test_a_switch_without_effect_leaves_the_run_open() -> None:
    """It is named: whoever reads it of a configuration promises a rule."""
    verdict = judged("ConfiguredUnread")
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert "no case passed `causal` (causal switch)" in verdict.sentence


def test_what_a_configuration_gave_is_said() -> None:
    """Names that the call alone reads too, and no switch that is passed with both its values."""
    (note,) = (each for each in judged("ConfiguredTurned").notes if "a configuration of" in each)
    said = "built with a configuration of `d_model`, `embedded` = embed_dim; `n_heads` = num_heads."
    assert said == note


def test_switches_of_positions_are_off() -> None:
    """`rel_pos_emb` is no width of an embedding, which would be a switch that is on."""
    verdict = judged("ConfiguredRotary")
    assert Outcome.PASS == verdict.outcome
    assert any("`rel_pos_emb` = False" in each for each in verdict.notes)
