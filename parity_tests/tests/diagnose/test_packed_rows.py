"""Rows that are counted to another of several packed sequences are said so, by one rule for all."""

from __future__ import annotations

import pytest

from mha_parity.diagnose.experiments.arrays.packed_rows import NUMBERS, REMEDY
from subject_checks import checks_of

judged = checks_of("packed_off_by_one.py", cases=40, diagnose=True)


@pytest.mark.parametrize(
    ("name", "rule"),
    [*zip(("first_row_before", "last_row_behind", "all_in_one"), NUMBERS, strict=True)],
    ids=("before", "behind", "all"),
)
def test_the_rule_by_which_rows_are_counted_is_named(name: str, rule: str) -> None:
    """Kills the weights of one key, which is what is left of it in a single sequence."""
    found, *_ = judged(name).diagnosis
    assert rule in found.title
    assert REMEDY == found.remedy
