"""Which failures are of one kind, where they are, and of which sizes a case is."""

from __future__ import annotations

import math

import pytest

from mha_parity.core.case import BLOCK, Case
from mha_parity.core.check_result import CheckResult, Place, Severity

CASE = Case(seed=0, batch=2, queries=3, keys=4, heads_count=2, head_dim=3)
BY_SENTENCE = {Severity.CRASH, Severity.STRUCTURE, Severity.BROKEN}
FAILING = {Severity.WRONG, Severity.TIMEOUT} | BY_SENTENCE
MIDST = "shape (2, 3) in place of [4], 5: no"


@pytest.mark.parametrize("severity", Severity)
def test_a_kind_has_the_sentence_of_what_has_no_numbers(severity: Severity) -> None:
    """Up to its first number or bracket, of what has no numbers alone; of others nothing.

    Kills the condition negated, by which failures of all sizes would be kinds of their own.
    """
    result = CheckResult(case=CASE, check="output", severity=severity, error=1.0, detail=MIDST)
    cut = severity in BY_SENTENCE
    assert ("output", severity, "shape " if cut else "") == result.kind
    assert severity.fails is (severity in FAILING)


@pytest.mark.parametrize("error", [math.inf, math.nan, 1e300])
def test_a_wrong_answer_without_a_number_is_of_another_kind(error: float) -> None:
    """Kills `and` for `or`: what is not wrong has no such kind, however large its error."""
    for severity in (Severity.WRONG, Severity.INCONCLUSIVE):
        kind = CheckResult(case=CASE, check="o", severity=severity, error=error).kind
        finite = severity is not Severity.WRONG or error == 1e300
        assert ("o", severity, "" if finite else "not finite") == kind


def test_a_place_says_what_it_has() -> None:
    """A sample and a head from 0 on; -1 is none."""
    assert "sample 0, head 0, row 1, column 2" == str(Place(0, 0, 1, 2))
    assert "head 0, row 1, column 2" == str(Place(-1, 0, 1, 2))
    assert "sample 1, row 1, column 2" == str(Place(1, -1, 1, 2))


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({}, "small"),
        ({"heads_count": 3}, "equal"),
        ({"heads_count": 4}, "small"),
        *(({name: 0}, "empty") for name in ("batch", "queries", "keys", "heads_count", "head_dim")),
        *(({name: 1}, "ones") for name in ("batch", "queries", "keys", "head_dim")),
        ({"heads_count": 1}, "small"),
        ({"batch": 1, "layout": "unbatched"}, "small"),
        *(({name: BLOCK}, "small") for name in ("queries", "keys")),
        *(({name: BLOCK + 1}, "medium") for name in ("queries", "keys")),
        ({"keys": BLOCK + 1, "queries": 1}, "ones"),
        ({"keys": BLOCK + 1, "queries": 0}, "empty"),
    ],
)
def test_the_kind_of_sizes_is_the_first_that_holds(changes: dict[str, object], size: str) -> None:
    """Kills `>` for `==` in heads as wide as they are many, and each limit moved by one."""
    assert size == CASE.replace(**changes).size


@pytest.mark.parametrize(
    ("feature", "changes", "value"),
    [
        *(("kv_heads", {"kv_heads_count": n}, "fewer" if n == 1 else "equal") for n in range(3)),
        *(("v_dim", {"v_head_dim": n}, "equal" if n in (0, 3) else "other") for n in range(5)),
        *(("heads", {"heads_count": n}, "one" if n == 1 else "many") for n in (1, 2)),
    ],
)
def test_counts_and_widths_are_features(
    feature: str, changes: dict[str, object], value: str
) -> None:
    """0 stands for as many, or as wide, as the others."""
    assert value == getattr(CASE.replace(**changes), feature)
