"""A causal switch is passed beside a mask of some future keys too, unless both are refused."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("overwritten_masks.py", cases=120)


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("both", Outcome.PASS), ("one_of_both", Outcome.PASS), ("either", Outcome.FAIL)],
)
def test_a_mask_does_not_take_the_place_of_the_switch(name: str, outcome: Outcome) -> None:
    """Kills `elif causal`, where a mask (L, S) and the switch are never passed together."""
    assert outcome is judged(name).outcome


def test_the_mask_beside_the_switch_is_named() -> None:
    """What rows see follows from the mask: that it was passed is said."""
    (found, *_) = judged("either", diagnose=True).diagnosis
    assert "beside `mask`, which hides some of the same keys" in found.title
