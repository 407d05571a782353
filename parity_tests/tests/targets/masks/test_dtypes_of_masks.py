"""Masks are passed in the dtypes that are taken: one that raises is not offered, in its words."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import check_subject, checks_of

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


def test_each_dtype_is_tried_with_booleans_and_with_floats_of_one_parameter() -> None:
    """Kills the first kind for all of them: floats go through in float16, and booleans raise."""
    verdict = judged("FilledOrAdded")
    assert 0 == verdict.failed, verdict.sentence
    (row,) = (r for r in verdict.features if (r.axis, r.value) == ("dtype", "float16"))
    assert 0 == row.cases
    assert "with `mask` it raised RuntimeError" in row.reason


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("by_torchs_name", Outcome.PASS),
        ("by_another_name", Outcome.PASS),
        ("inverted_twice", Outcome.FAIL),
    ],
)
def test_integers_are_not_passed_where_booleans_alone_hide(name: str, outcome: Outcome) -> None:
    """Kills integers beside booleans that fit: right masks of ``~`` failed, by their dtype too."""
    verdict = check_subject(f"inverted_masks.py:{name}", cases=40, dtypes=("float32",))
    assert outcome is verdict.outcome, verdict.sentence
