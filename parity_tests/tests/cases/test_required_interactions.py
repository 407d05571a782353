"""What three and more properties have together is in every run, early, and in plain cases."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from mha_parity.cases import required_interactions
from mha_parity.cases.case_order import asked_cases
from mha_parity.cases.covering import FIRST, draw_cases
from mha_parity.cases.feature_interaction import Interaction
from mha_parity.cases.required_interactions import (
    EVERY,
    INTERACTIONS,
    PATIENCE,
    MissingInteractions,
)
from mha_parity.catalogue import whole_offer
from mha_parity.core.case import Case
from mha_parity.core.features import PLAIN, Offer, make_offer

SEEDS = range(10)
FUNCTION = {"form": "qkv", "projection": "none"}
OFFERS: dict[str, Offer] = {
    "everything": whole_offer(),
    "switch alone": make_offer(**FUNCTION, inputs=("self", "cross"), attn=("none", "causal")),
    "always causal": make_offer(inputs=("self", "cross"), attn="causal"),
    "unbatched": make_offer(layout="unbatched", inputs=("self", "cross"), attn=("none", "causal")),
    "float16": make_offer(**FUNCTION, inputs="cross", attn=("none", "causal"), dtype="float16"),
    "layer": make_offer(inputs=("self", "distinct"), bias="yes", attn=("none", "bool2d", "causal"),
                   padding=("none", "bool"), dtype=("float64", "float32")),
}  # fmt: skip


def has_switch_alone(case: Case) -> bool:
    """Return whether a case has the causal rule, L unlike S, and no mask beside it."""
    return (case.attn, case.padding) == ("causal", "none") and 0 < case.queries != case.keys > 0


@pytest.mark.parametrize("name", OFFERS)
@pytest.mark.parametrize(
    ("draw", "count", "seeds"),
    [(draw_cases, 50, 10), (asked_cases, 100, 2)],
    ids=["drawn", "asked"],
)
def test_the_switch_is_asked_alone_below_and_above_the_square(
    name: str, draw: Callable[[Offer, int, int], Iterable[Case]], count: int, seeds: int
) -> None:
    """The first 50 cases have the causal rule alone at L < S and at L > S, whatever the seed is.

    In the order of asking the first 100: features that 40 other cases decide come before.
    """
    for seed in range(seeds):
        cases = draw(OFFERS[name], count, seed)
        below = [case.queries < case.keys for case in cases if has_switch_alone(case)]
        assert {True, False} == set(below), seed


def test_without_made_cases_a_seed_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would see a draw that leaves the interactions to chance."""
    monkeypatch.setattr(required_interactions, "INTERACTIONS", ())
    runs = [draw_cases(OFFERS["layer"], 50, seed) for seed in SEEDS]
    below = [{c.queries < c.keys for c in run if has_switch_alone(c)} for run in runs]
    assert any(each != {True, False} for each in below)


@pytest.mark.repeats(3)
@pytest.mark.parametrize("name", OFFERS)
def test_every_interaction_that_is_offered_is_in_a_run(name: str) -> None:
    """500 cases show each one that the offer does not exclude; those of one size come late."""
    offered = OFFERS[name]
    missing = MissingInteractions(offered, random.Random(0))
    wanted = [each for each in INTERACTIONS if missing.lacks(each)]
    assert wanted
    for seed in SEEDS:
        cases = draw_cases(offered, 500, seed)
        early = cases[: FIRST + EVERY * len(INTERACTIONS)]
        for each in wanted:
            among = cases if each.first else early
            assert any(each.shown_by(case, offered) for case in among), (seed, each.name)


def test_everything_offers_each_interaction() -> None:
    """None of the list is excluded by the definitions of torch."""
    missing = MissingInteractions(whole_offer(), random.Random(0))
    assert [] == [each.name for each in INTERACTIONS if not missing.lacks(each)]


def test_a_made_case_is_plain_elsewhere() -> None:
    """A case for the switch alone has no other feature that could hide or cause a difference."""
    seen = []
    for seed in SEEDS:
        cases = draw_cases(OFFERS["layer"], FIRST + 2, seed)
        seen += [case for case in cases[FIRST + 1 :] if has_switch_alone(case)]
    odd = {axis for case in seen for axis, value in case.features().items() if value != PLAIN[axis]}
    assert seen
    assert odd <= {"attn", "inputs", "bias", "dtype"}


def test_the_first_cases_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 24 cases, and those on even places, are the cover's own."""
    made = draw_cases(whole_offer(), 40, 0)
    monkeypatch.setattr(required_interactions, "INTERACTIONS", ())
    own = [case.replace(seed=0) for case in draw_cases(whole_offer(), 40, 0)]

    assert own[:FIRST] == [case.replace(seed=0) for case in made[:FIRST]]
    later = [case.replace(seed=0) for i, case in enumerate(made) if i >= FIRST and i % EVERY == 0]
    assert own[FIRST : FIRST + len(later)] == later


def test_what_no_seed_makes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interaction that no case shows is tried at a bounded number of places."""
    never = Interaction(name="never", features={}, holds=lambda _: False)
    monkeypatch.setattr(required_interactions, "INTERACTIONS", (never,))
    missing = MissingInteractions(make_offer(), random.Random(0))
    tried: list[int] = []

    def make(features: dict[str, str], sizes: dict[str, int]) -> Case:
        tried.append(len(features))
        return Case(seed=0, **sizes)  # type: ignore[arg-type]  # fields vary in type

    assert missing.made(PATIENCE - 1, make) is None
    assert tried
    tried.clear()
    assert missing.made(PATIENCE + 1, make) is None
    assert not tried
