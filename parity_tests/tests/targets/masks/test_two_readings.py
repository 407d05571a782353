"""What fits two readings is asked where they differ: masks, layouts, inputs and causal switches."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import check_subject

FILE = "two_readings.py"

RIGHT = ["Padding", "EitherLayout", "Pictures", "Hints", "AllAmongThem", "switched"]


@pytest.mark.repeats(2)
@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_hold(name: str) -> None:
    """No reading is taken that the target has not."""
    verdict = check_subject(f"{FILE}:{name}", cases=60, dtypes=("float64",))
    assert Outcome.PASS == verdict.outcome, verdict


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    ("name", "seed", "axis", "right"),
    [
        *(("PaddingUnlessAsManyQueries", seed, "padding", "none") for seed in range(3)),
        ("OneLayoutAlone", 0, "layout", "sequence_first"),
        ("PicturesOfMany", 0, "inputs", "self"),
        *(("switched_at_the_end", seed, "attn", "none") for seed in range(3)),
    ],
)
def test_one_that_is_wrong_by_one_reading_fails(
    name: str, seed: int, axis: str, right: str
) -> None:
    """Whatever the seed is, some of 500 cases have the sizes or the lengths at which it shows."""
    few = {"cases": 500, "dtypes": ("float64",), "fail_fast": True}
    verdict = check_subject(f"{FILE}:{name}", seed=seed, **few)
    assert Outcome.FAIL == verdict.outcome, verdict
    failing = {row.value for row in verdict.features if row.axis == axis and row.failed}
    assert failing - {right}


def test_a_mask_of_two_axes_alone_is_asked_with_both_readings() -> None:
    """No call passes padding and another mask at once, so that cases have one of them.

    Kills masks that are offered together or not at all: padding was never passed.
    """
    few = {"cases": 500, "dtypes": ("float64",), "fail_fast": True}
    verdict = check_subject(f"{FILE}:TwoAxesAlone", **few)
    assert Outcome.FAIL is verdict.outcome, verdict
    case = verdict.failures[0].case
    assert ("none", case.batch) == (case.attn, case.queries)
    assert "none" != case.padding


def test_an_input_that_is_no_key_is_left_at_its_default() -> None:
    """What is added to the queries gives no attention as keys, and is named as untried."""
    verdict = check_subject(f"{FILE}:Hints", cases=60, dtypes=("float64",))
    assert "parameters not tried: hint" in verdict.sentence
