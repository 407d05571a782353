"""What names alone would call wrongly is called as small calls show, and judged."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

FILE = "called_otherwise.py"
# A right subject, and one that is wrong in the same call.
WRONG_OF = {
    "length_first": "length_first_unscaled",
    "one_sample": "one_sample_hides",
    "Proximal": "ProximalAlways",
    "OwnModule": "OwnModuleUnscaled",
    "OfOneInput": "OfOneInputUnscaled",
    "KeysFirst": "KeysFirstUnscaled",
}


judged = checks_of(FILE, cases=48, dtypes=("float64",))


@pytest.mark.repeats(2)
@pytest.mark.parametrize("name", WRONG_OF)
def test_right_ones_hold(name: str) -> None:
    """Rows before heads, masks of one sample, a bias of the scores, methods of torch's names.

    One input next to weights of torch's names, and keys before queries.
    """
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict.sentence


def test_keys_before_queries_are_asked_of_unlike_lengths() -> None:
    """Which input is the query is known by its name, and cases have more keys or fewer."""
    verdict = judged("KeysFirst")
    assert any(row.cases for row in verdict.features if row.value == "cross"), verdict.features


@pytest.mark.repeats(2)
@pytest.mark.parametrize("name", WRONG_OF.values())
def test_wrong_ones_fail(name: str) -> None:
    """The same calls, and wrong numbers."""
    verdict = judged(name, fail_fast=True)
    assert Outcome.FAIL == verdict.outcome, verdict.sentence
