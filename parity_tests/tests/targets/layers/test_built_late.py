"""Weights of a first call, switches of a constructor, and output weights with an axis of heads."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

WRONG_OF = {
    "FirstCall": "FirstCallByWidth",
    "OwnKernel": "OwnKernelUnscaled",
    "by_heads": "by_heads_of_one",
}


judged = checks_of("built_late.py", cases=24, dtypes=("float64",))


@pytest.mark.parametrize("name", WRONG_OF)
def test_right_ones_hold(name: str) -> None:
    """The weights of the first call are found, and no rows kept next to them are taken for some.

    A switch without a default is off, and an output weight (H, D, E) is filled head by head.
    """
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict.sentence


@pytest.mark.parametrize("name", WRONG_OF.values())
def test_wrong_ones_fail(name: str) -> None:
    """The same calls, and wrong numbers."""
    verdict = judged(name, fail_fast=True)
    assert Outcome.FAIL == verdict.outcome, verdict.sentence
