"""A single number of visible keys is tried, judged, and said, of functions of one sample."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("single_lengths.py", cases=120, dtypes=("float64",))


@pytest.mark.parametrize("name", ["visible", "causal", "of_heads"])
def test_right_ones_pass_with_padding(name: str) -> None:
    """The number is passed, and what it means is said."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict
    assert any("the number of visible keys" in note for note in verdict.notes), verdict.notes
    drawn = next(f for f in verdict.features if (f.axis, f.value) == ("padding", "lengths"))
    assert drawn.cases > 3


@pytest.mark.parametrize(
    "name",
    ["one_too_many", "causal_in_the_cache", "of_heads_one_too_many"],
)
def test_wrong_ones_fail(name: str) -> None:
    """One key too many; padding that stays for later calls."""
    assert Outcome.FAIL == judged(name).outcome


def test_one_number_beside_a_mask_that_says_all_lengths_is_passed_too() -> None:
    """Of several samples the mask alone can say it: some cases have one sample, for the number."""
    assert Outcome.FAIL == judged("beside_a_mask_one_too_many", cases=500).outcome
    assert Outcome.PASS == judged("beside_a_mask", cases=500).outcome
