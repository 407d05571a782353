"""One head that is built with a width of its input and its own is judged with two widths."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("single_heads.py", cases=60)
SAID = "its input is twice as wide as its one head"


@pytest.mark.parametrize(
    ("name", "outcome", "wider"),
    [
        ("Head", Outcome.PASS, True),
        ("ByInput", Outcome.FAIL, True),
        ("OfModule", Outcome.FAIL, True),
        ("Joined", Outcome.PASS, True),
        ("Normed", Outcome.FAIL, True),
        ("WideValues", Outcome.PASS, False),
        ("OfOneWidth", Outcome.PASS, False),
    ],
)
def test_the_scale_of_one_head_is_that_of_its_own_width(
    name: str, outcome: Outcome, *, wider: bool
) -> None:
    """Kills a scale by the input's width, which is right where both widths are one.

    Also kills an exception where an array follows one of both widths alone.
    """
    verdict = judged(name)
    assert outcome is verdict.outcome, verdict
    assert wider is any(SAID in note for note in verdict.notes)


def test_gradients_are_those_of_one_width() -> None:
    """Weights of a wider input would have gradients of columns that torch's layer lacks."""
    assert Outcome.PASS == judged("Joined", grad=True).outcome


def test_the_scale_is_measured() -> None:
    """What it is divided by is named, and not twice the head's width."""
    (found, *_) = judged("ByInput", diagnose=True).diagnosis
    assert "the effective scale is 1/sqrt(E), by the width of the input" in found.title
