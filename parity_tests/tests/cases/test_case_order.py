"""The order of asking: the drawn cases, and those that show most come early."""

from __future__ import annotations

import pytest

from mha_parity.cases.case_order import WINDOW, asked_cases, order_by_new_pairs
from mha_parity.cases.covering import FIRST, draw_cases
from mha_parity.catalogue.registry import whole_offer
from mha_parity.core.features import make_offer

OFFERS = {"whole": whole_offer(), "narrow": make_offer(inputs=("self", "cross"), dtype="float32")}


@pytest.mark.parametrize("name", OFFERS)
def test_the_order_keeps_the_cases(name: str) -> None:
    """The order changes the places of the first 500 cases alone, after those that keep theirs."""
    asked, drawn = list(asked_cases(OFFERS[name], 600, 3)), draw_cases(OFFERS[name], 600, 3)

    assert asked != drawn
    assert drawn[:FIRST] == asked[:FIRST]
    assert set(drawn[:WINDOW]) == set(asked[:WINDOW])
    assert drawn[WINDOW:] == asked[WINDOW:]


@pytest.mark.parametrize("count", [5, FIRST, FIRST + 1, 60, 500])
def test_a_shorter_run_asks_the_first_cases_of_a_longer_one(count: int) -> None:
    """The number of cases does not decide which come first."""
    assert list(asked_cases(OFFERS["whole"], count, 1)) == LONG[:count]


LONG = list(asked_cases(OFFERS["whole"], 700, 1))


def test_what_the_first_cases_show_is_not_sought_again() -> None:
    """Of a case with two features that the first ones have and one with a new one, it is first."""
    old: set[tuple[str, object]] = {("a", 1), ("b", 1)}
    new: set[tuple[str, object]] = {("c", 1)}
    order = order_by_new_pairs([*[old] * FIRST, old, new], [1.0] * (FIRST + 2))
    assert [FIRST + 1, FIRST] == order[FIRST:]
