"""What is named as torch's layer lacks is refused where it is so, and judged where it is not."""

from __future__ import annotations

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from subject_checks import check_subject

FILE = "named_as_norms.py"


@pytest.mark.parametrize(
    "name", ["NormalizesOverQueries", "DividesByWidth", "RotatesAxes", "AlongOneAxis"]
)
def test_a_name_excuses_nothing(name: str) -> None:
    """A softmax called `normalize`, queries called `q_norm`, and a merge called `rotate` fail.

    Attention along one axis of a grid is seen wherever both are longer than 1.
    """
    verdict = check_subject(f"{FILE}:{name}", fail_fast=True)
    assert Outcome.FAIL == verdict.outcome, verdict


def test_positions_of_the_second_axis_are_seen() -> None:
    """Rows passed as a grid have no axis of 1 that hides what turns them."""
    with pytest.raises(TargetError, match="`cos`, `sin` have no counterpart in torch's layer"):
        check_subject(f"{FILE}:TurnsBySecondAxis")


@pytest.mark.parametrize("name", ["rows_of_heads", "HeadMask"])
def test_right_ones_pass(name: str) -> None:
    """`dropout_p` tells nothing of the layout, and a mask of heads is none of the scores."""
    verdict = check_subject(f"{FILE}:{name}", cases=60)
    assert 0 == verdict.failed, verdict
    assert Outcome.PASS == verdict.outcome, verdict
