"""Weights of a first call, switches of a constructor, and output weights with an axis of heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_parity.core.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

SUBJECTS = {
    "FirstCall": "FirstCallByWidth",
    "OwnKernel": "OwnKernelUnscaled",
    "by_heads": "by_heads_of_one",
}


@pytest.fixture(scope="module")
def judged(check_subject: Callable[..., Verdict]) -> Callable[..., Verdict]:
    """Return the function that checks a subject of the file in float64."""

    def check(name: str, **options: object) -> Verdict:
        return check_subject(f"built_late.py:{name}", cases=24, dtypes=("float64",), **options)

    return check


@pytest.mark.parametrize("name", SUBJECTS)
def test_right_ones_hold(judged: Callable[..., Verdict], name: str) -> None:
    """The weights of the first call are found, and no rows kept next to them are taken for some.

    A switch without a default is off, and an output weight (H, D, E) is filled head by head.
    """
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict.sentence


@pytest.mark.parametrize("name", SUBJECTS.values())
def test_wrong_ones_fail(judged: Callable[..., Verdict], name: str) -> None:
    """The same calls, and wrong numbers."""
    verdict = judged(name, fail_fast=True)
    assert Outcome.FAIL == verdict.outcome, verdict.sentence
