"""Sizes leave no hole: every listed value is drawn, and few cases are long."""

from __future__ import annotations

import random

import pytest

from mha_parity.cases.covering import draw_cases
from mha_parity.cases.sizes import (
    BATCHES,
    HEAD_DIMS,
    HEADS,
    LAYERS,
    LONG,
    LONG_LIMIT,
    LONGEST,
    SHORT,
    Round,
    judging_microseconds,
)
from mha_parity.core.case import BLOCK, Case
from mha_parity.core.features import AXES, Offer, make_offer

WHOLE: Offer = {axis: tuple(values) for axis, values in AXES.items()}


def dear(case: Case) -> float:
    """Return the estimated cost of a case."""
    names = ("batch", "queries", "keys", "heads_count", "head_dim")
    return judging_microseconds({name: getattr(case, name) for name in names}, case.features())


@pytest.mark.parametrize("seed", range(3), ids="seed{}".format)
def test_every_listed_size_is_drawn(seed: int) -> None:
    """500 cases have each head width, number of heads, batch and short length of the lists."""
    cases = draw_cases(WHOLE, 500, seed)

    assert set() == set(HEAD_DIMS) - {case.head_dim for case in cases}
    assert set() == set(HEADS) - {case.heads_count for case in cases}
    assert set() == set(BATCHES) - {case.batch for case in cases}
    assert set() == {1, *SHORT} - {case.keys for case in cases}
    assert set() == {1, *SHORT} - {case.queries for case in cases}
    assert max(case.keys for case in cases) >= 2**11 - 1


def test_lists_hold_the_edges_of_tiles() -> None:
    """Powers of two with their neighbours are in the lists, widths to 128, lengths to 2,100."""
    widths, lengths = {1, *HEAD_DIMS}, {1, *SHORT, *LONG}

    assert set() == {2**n + step for n in range(1, 7) for step in (-1, 0, 1)} - widths
    assert set() == {2**n + step for n in range(1, 12) for step in (-1, 0, 1)} - lengths
    assert (128, LONGEST) == (max(widths), max(lengths))


@pytest.mark.parametrize("inputs", ["self", "cross"])
def test_long_cases_are_few_and_cheap(inputs: str) -> None:
    """At most one case in four is long, and few cost more than their limit allows."""
    cases = draw_cases(make_offer(inputs=inputs), 500, 0)
    long = [case for case in cases if max(case.queries, case.keys) > BLOCK]

    assert len(long) < len(cases) / 4
    layers = [case for case in cases if (case.heads_count, case.head_dim) in LAYERS]
    assert len(layers) < 6
    assert all(dear(case) < 2 * LONG_LIMIT for case in cases if case not in [*long, *layers])
    assert sum(dear(case) > LONG_LIMIT for case in long) < len(cases) / 50


def test_a_round_deals_each_value_once() -> None:
    """Each value comes once before any comes again; one that does not fit keeps its place."""
    dealt = Round(range(5), random.Random(0))
    first = [dealt.next_fitting(lambda value: value != 3) for _ in range(4)]

    assert [0, 1, 2, 4] == sorted(value for value in first if value is not None)
    assert 3 == dealt.next_fitting(lambda _: True)
    assert dealt.next_fitting(lambda value: value > 9) is None


def test_self_attention_has_one_length() -> None:
    """With self-attention alone, queries are as many as keys, short or long."""
    cases = draw_cases(make_offer(inputs="self"), 200, 1)

    assert all(case.queries == case.keys for case in cases)
    assert any(case.keys > BLOCK for case in cases)
