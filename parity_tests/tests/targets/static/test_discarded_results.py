"""A call whose new tensor is dropped is a note: the mask that it makes hides nothing."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.static.discarded_results import dropped_results
from subject_checks import checks_of

judged = checks_of("dropped_results.py", cases=60)
SAID = (
    "`masked_fill` in line 24 of dropped_results.py has no effect, since its result is dropped: "
    "assign it, or call `masked_fill_`."
)


def test_a_mask_that_is_dropped_is_said() -> None:
    """Such a layer computes torch's attention without a mask, and its author meant another."""
    verdict = judged("MeantToHide")
    assert Outcome.PASS == verdict.outcome, verdict
    assert SAID in verdict.notes


def test_an_axis_that_is_dropped_is_said() -> None:
    """A mask of samples then reaches heads, where it is as long: the report said nothing of it."""
    notes = judged("MeantForHeads").notes
    assert any("`unsqueeze` in line 45 of dropped_results.py has no effect" in n for n in notes)


def test_a_mask_in_place_is_not() -> None:
    """Kills the name with an underscore taken for the one without."""
    verdict = judged("Masked")
    assert Outcome.PASS == verdict.outcome, verdict
    assert not [each for each in verdict.notes if "dropped" in each]


@pytest.mark.parametrize("subject", [len, 3, dict], ids=repr)
def test_what_has_no_source_has_no_such_call(subject: object) -> None:
    """Functions in C, and objects that are none, are passed over."""
    assert not dropped_results(subject)
