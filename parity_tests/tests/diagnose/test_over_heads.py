"""Attention of the heads of one position is named, or measured, and taken for no other bug."""

from __future__ import annotations

import pytest

from subject_checks import assert_named, check_subject


@pytest.mark.repeats(1)
@pytest.mark.parametrize(
    ("name", "bugs"),
    [
        ("Layer", ["attention-over-heads"]),
        ("ByTorch", ["attention-over-heads"]),
        ("packed", ["attention-over-heads"]),
        ("normalised_over_heads", ["softmax-head-axis"]),
        ("over_positions", []),
    ],
)
def test_heads_that_attend_to_each_other_are_named(name: str, bugs: list[str]) -> None:
    """The bug is named alone in layers and functions, and so is a softmax over the heads."""
    assert_named(f"over_heads.py:{name}", bugs, cases=40)


def test_heads_that_depend_on_each_other_otherwise_are_measured() -> None:
    """Of heads mixed by no softmax that is known, it is said that they reach each other."""
    (cause,) = check_subject("over_heads.py:SummedHeads", cases=40, diagnose=True).diagnosis
    assert "heads are not independent: each of 3 heads reaches the outputs of all" == cause.title
    assert "no key of another position has a part in a row" in cause.evidence


def test_a_root_in_float32_does_not_stand_for_heads_that_are_mixed() -> None:
    """One head alone shows the root, by errors that are nothing beside those of several."""
    (cause,) = check_subject("over_heads.py:SplitTwice", cases=40, diagnose=True).diagnosis
    assert "heads are not independent: each of 3 heads reaches the outputs of all" == cause.title
