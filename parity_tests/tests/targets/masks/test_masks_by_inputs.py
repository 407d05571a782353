"""Masks of self-attention and of further keys are passed each with its own inputs."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("decoder_masks.py", cases=60, dtypes=("float64",))


def test_two_masks_are_passed_each_with_its_inputs() -> None:
    """No case gives the one that is not read, and the notes say which is read when."""
    verdict = judged("TwoMasks")
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed), verdict
    said = " ".join(verdict.notes)
    assert "read in self-attention alone" in said
    assert "read with further keys alone" in said


@pytest.mark.parametrize("seed", [0, 1])
def test_a_wrong_mask_of_further_keys_fails_there_alone(seed: int) -> None:
    """Half of it is added: cases of self-attention are right."""
    verdict = judged("TwoMasksHalved", seed=seed)
    assert Outcome.FAIL == verdict.outcome
    assert {"cross"} == {each.case.inputs for each in verdict.failures}


def test_a_mask_that_is_taken_at_equal_lengths_alone_makes_no_layout() -> None:
    """One sample without its axis is not asked, since its mask raises wherever S is not L."""
    verdict = judged("RowsOfMasks")
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed), verdict
    (row,) = (r for r in verdict.features if (r.axis, r.value) == ("layout", "unbatched"))
    assert "with `key_padding_mask` calls of other lengths raise" == row.reason
