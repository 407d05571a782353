"""What a layer keeps from a call by its lengths is asked of another number of samples."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("kept_masks.py", cases=32, dtypes=("float64",))


def test_a_mask_kept_for_a_length_holds() -> None:
    """One sample after several is answered as by a new layer."""
    assert Outcome.PASS == judged("KeptByLength").outcome


def test_a_mask_kept_for_the_samples_of_a_call_fails() -> None:
    """Each call of a new layer is right; the second, of one sample, has the shape of the first."""
    verdict = judged("KeptByLengthOfAll")
    assert Outcome.FAIL == verdict.outcome, verdict.sentence
    messages = [each.check_result.detail for each in verdict.failures]
    assert any("a problem of one sample" in each for each in messages), messages


def test_a_rule_that_is_judged_at_equal_lengths_is_asked_at_others_between() -> None:
    """What is kept of a call with more keys than queries changes the answers after it."""
    assert Outcome.PASS == judged("LastRows").outcome
    verdict = judged("LastRowsOfTheLargest")
    assert Outcome.FAIL == verdict.outcome, verdict.sentence
    messages = [each.check_result.detail for each in verdict.failures]
    assert any("10 queries and 20 keys" in each for each in messages), messages
