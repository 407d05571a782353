"""Rows that a float mask fills with the least finite number are NaN where a factor overflows."""

from __future__ import annotations

from subject_checks import checks_of

ROWS = (("attn", "float2d"), ("masked_rows", "some"), ("gradients", "no"))
checked = checks_of("added_masks.py", cases=40, features=ROWS, diagnose=True)
TITLE = "rows whose float mask is the least finite number at every key are NaN"


def test_a_mask_that_overflows_is_said_with_what_makes_it_right() -> None:
    """Half of the mask gives the right answer: nothing else is wrong in these rows."""
    (found,) = checked("in_base_two", cases=160).diagnosis
    assert found.title.startswith(TITLE)
    assert "calls with half a mask" in found.evidence


def test_what_has_no_neighbour_in_float32_is_not_computed_in_it() -> None:
    """Kills the bounds of a problem whose least numbers are -inf in float32, where NaN is right."""
    verdict = checked("in_base_two", cases=160, dtypes=("float64",))
    said = [each.title for each in verdict.diagnosis]
    assert said
    assert not any("float32" in each for each in said), said


def test_a_mask_that_is_wrong_in_other_rows_too_is_another_cause() -> None:
    """Kills a sentence by such rows alone: of a mask that is scaled they are right."""
    verdict = checked("scaled_with_it")
    assert verdict.failures
    assert not any(TITLE in each.title for each in verdict.diagnosis)
