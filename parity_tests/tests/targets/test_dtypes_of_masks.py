"""A dtype in which a mask of floats raises is not offered, in the layer's own words."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("dtypes_of_masks.py", cases=60)


def test_a_dtype_that_masks_raise_in_is_left_out() -> None:
    """The layer passes in the other dtypes, and the reason is what it raised with the mask."""
    verdict = judged("NoShortMasks")
    assert 0 == verdict.failed, verdict.sentence
    (row,) = (r for r in verdict.features if (r.axis, r.value) == ("dtype", "bfloat16"))
    assert 0 == row.cases
    assert "with floats in `attn_mask` it raised TypeError" in row.reason


def test_what_is_wrong_in_the_others_fails() -> None:
    """The dtype is left out, and not the layer."""
    assert Outcome.FAIL == judged("NoShortMasksDoubled", fail_fast=True).outcome


def test_each_dtype_is_tried_with_padding_beside_an_addend() -> None:
    """Kills one mask for all of them: bfloat16 was offered, and each case with padding failed."""
    verdict = judged("OffsetInFloat32")
    assert 0 == verdict.failed, verdict.sentence
    (row,) = (r for r in verdict.features if (r.axis, r.value) == ("dtype", "bfloat16"))
    assert 0 == row.cases
    assert "with `mask` it raised RuntimeError" in row.reason
