"""A layer without ``batch_first`` is judged along the axis that it attends along."""

from __future__ import annotations

import pytest

from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome
from mha_parity.run.check import check
from mha_parity.targets.bind import bind
from mha_parity.targets.convention_base.sequence_axis import BATCH_FIRST
from mha_parity.targets.load import load
from subject_checks import SUBJECTS

FILE = SUBJECTS / "without_batch_first.py"


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("SequenceFirst", "sequence_first"),
        ("BatchFirst", "batch_first"),
        ("BothAxes", "sequence_first"),  # neither axis alone: torch's default
        ("NoBatchOfTwo", "sequence_first"),  # raises: the trials say what
    ],
)
def test_the_layout_is_that_of_the_axis(name: str, first: str) -> None:
    """Where one axis alone is attended along, it is the sequence; it is said where torch's is not.

    What mixes both is judged in torch's default.
    """
    bound = bind(load(f"{FILE}:{name}"))
    assert bound.offer["layout"][0] == first
    assert (BATCH_FIRST in bound.remarks) is (first == "batch_first")


def test_a_right_layer_that_is_batch_first_passes() -> None:
    """All cases are drawn batch first or of one sample."""
    verdict = check(bind(load(f"{FILE}:BatchFirst")), Options(cases=30, seed=3))
    assert verdict.outcome is Outcome.PASS
    assert BATCH_FIRST in verdict.notes


def test_linears_are_judged_along_their_axis_though_the_output_is_wrong() -> None:
    """The axis follows from what moves, not from right numbers: the cause that is left is said."""
    target = bind(load(f"{FILE}:BiasTwice"))
    assert ("sequence_first",) == target.offer["layout"]
    verdict = check(target, Options(cases=30, seed=3, shrink=False))
    assert "the bias of the output projection is added 2 times" in verdict.diagnosis[0].title
