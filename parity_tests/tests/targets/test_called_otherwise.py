"""What names alone would call wrongly is called as small calls show, and judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_parity.core.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

FILE = "called_otherwise.py"
# A right subject, and one that is wrong in the same call.
SUBJECTS = {
    "length_first": "length_first_unscaled",
    "one_sample": "one_sample_hides",
    "Proximal": "ProximalAlways",
    "OwnModule": "OwnModuleUnscaled",
    "OfOneInput": "OfOneInputUnscaled",
    "KeysFirst": "KeysFirstUnscaled",
}


@pytest.fixture(scope="module")
def judged(check_subject: Callable[..., Verdict]) -> Callable[..., Verdict]:
    """Return the function that checks a subject of the file in float64."""

    def check(name: str, **options: object) -> Verdict:
        return check_subject(f"{FILE}:{name}", cases=48, dtypes=("float64",), **options)

    return check


@pytest.mark.parametrize("name", SUBJECTS)
def test_right_ones_hold(judged: Callable[..., Verdict], name: str) -> None:
    """Rows before heads, masks of one sample, a bias of the scores, methods of torch's names.

    One input next to weights of torch's names, and keys before queries.
    """
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict.sentence


def test_keys_before_queries_are_asked_of_unlike_lengths(
    judged: Callable[..., Verdict],
) -> None:
    """Which input is the query is known by its name, and cases have more keys or fewer."""
    verdict = judged("KeysFirst")
    assert any(row.cases for row in verdict.features if row.value == "cross"), verdict.features


@pytest.mark.parametrize("name", SUBJECTS.values())
def test_wrong_ones_fail(judged: Callable[..., Verdict], name: str) -> None:
    """The same calls, and wrong numbers."""
    verdict = judged(name, fail_fast=True)
    assert Outcome.FAIL == verdict.outcome, verdict.sentence
