"""`is_decoder` of a configuration is a causal switch where it hides the future."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("decoders.py", cases=60, dtypes=("float64", "float32"))


def test_what_a_decoder_hides_is_asked() -> None:
    """Kills a switch that is left off, by which a rule beside a mask is never seen."""
    right = judged("Decoder")
    assert Outcome.PASS is right.outcome, right
    (row,) = (each for each in right.features if ("attn", "causal") == (each.axis, each.value))
    assert row.cases
    wrong = judged("DecoderOfBoth")
    assert Outcome.FAIL is wrong.outcome, wrong


def test_a_switch_that_changes_nothing_is_no_causal_one() -> None:
    """Kills a verdict that waits for a rule which a layer does not have."""
    right = judged("Encoder")
    assert Outcome.PASS is right.outcome, right
    assert "is_decoder" not in right.sentence
