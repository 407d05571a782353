"""Draws cases so that every pair of offered feature values occurs together; the rest is random."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import TYPE_CHECKING

from mha_parity.cases.clashes import can_coexist, complete_features, fits_features
from mha_parity.cases.required_interactions import MissingInteractions
from mha_parity.cases.sizes import SizeDraw
from mha_parity.core.case import Case
from mha_parity.core.features import EXTREME_VALUES, PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.cases.sizes import Sizes
    from mha_parity.core.features import Features, Offer

Pair = tuple[tuple[str, str], tuple[str, str]]
HALF = 0.5
# Takes no part in the draw: a run with gradients has the cases of a run without.
UNCOVERED_AXIS = "gradients"
SEED_STRIDE = 1_000_003  # the distance between the seeds of two runs' cases
# Runs whose seeds fit into 32 bits; the run after the last has the values of the first again.
RUNS = 2**32 // SEED_STRIDE
# Regimes that replace the normal one in one of REPLACED_EVERY drawn cases that can have them.
# The first cases stay plain, and so do those whose calls are repeated.
REPLACED_EVERY = 3
FIRST, REPEAT_EVERY = 24, 8  # calls are repeated on the first cases, and on each eighth of all
ATTEMPTS = 8  # candidates per greedy step: more make the list a little shorter, and slower


def case_index(case: Case) -> int:
    """Return the place of a case in its run, from its seed; some number for a seed of another."""
    return case.seed % SEED_STRIDE


def reachable(offer: Offer) -> Offer:
    """Return the offer without the values that no case can have with the rest of the offer."""
    rng = random.Random(0)
    drawn = _drawn(offer)
    # Axes of one value come first: others drawn before them would exclude it by chance.
    alone = {axis: values[0] for axis, values in drawn.items() if len(values) == 1}

    def occurs(axis: str, value: str, attempts: int) -> bool:
        return any(complete_features(drawn, alone | {axis: value}, rng) for _ in range(attempts))

    reached = offer | {
        axis: tuple(v for v in values if occurs(axis, v, ATTEMPTS))
        for axis, values in drawn.items()
    }
    extreme = (v for v in _extreme(offer) if occurs("regime", v, ATTEMPTS * ATTEMPTS))
    return reached | {"regime": (*reached["regime"], *extreme)}


def _drawn(offer: Offer) -> Offer:
    """Return the axes that are drawn, and their values that are."""
    axes = {axis: values for axis, values in offer.items() if axis != UNCOVERED_AXIS}
    kept = tuple(v for v in axes["regime"] if v not in EXTREME_VALUES)
    return axes | {"regime": kept or axes["regime"]}


def _extreme(offer: Offer) -> tuple[str, ...]:
    """Return the regimes of the offer that replace the normal one in drawn cases."""
    extreme = tuple(v for v in offer["regime"] if v in EXTREME_VALUES)
    return extreme if len(extreme) < len(offer["regime"]) else ()


def draw_cases(offer: Offer, count: int, seed: int) -> list[Case]:
    """Return ``count`` cases, as ``drawn_cases`` yields them."""
    return list(drawn_cases(offer, count, seed))


def drawn_cases(offer: Offer, count: int, seed: int) -> Iterator[Case]:
    """Yield ``count`` cases: the pairwise cover first, then random ones.

    Between them, after the first ``FIRST``, stand cases made for interactions that are missing.
    Where ``count`` is smaller than the cover, the first ``count`` cases of it: they cover the most.
    All of them ask for gradients where the offer has them.
    """
    rng = random.Random(seed)
    drawn, sizes = _drawn(offer), SizeDraw(random.Random(f"sizes of {seed}"))
    features = itertools.chain(cover(drawn, rng), _random(drawn, rng))
    extreme = _extreme(offer)
    replaced = _Replacing(extreme or EXTREME_VALUES, offer["inputs"])
    missing = MissingInteractions(drawn, random.Random(f"interactions of {seed}"))
    gradients = {UNCOVERED_AXIS: offer[UNCOVERED_AXIS][-1]}
    for i in range(count):

        def case_of(features: Features, sizes: Sizes, index: int = i) -> Case:
            return _case(features | gradients, sizes, seed, index)

        case = missing.made(i, case_of) if i >= FIRST else None
        if case is None:
            each = next(features)
            case = case_of(each, sizes.sizes(each))
            other = replaced.case(case, each)
            if other != case:  # not counted on, even where no such regime is offered
                yield other if extreme else case
                continue
        missing.note(case)
        yield case


class _Replacing:
    """Replace the normal regime in some of the cases of one run, one case after the other."""

    def __init__(self, regimes: tuple[str, ...], inputs: tuple[str, ...]) -> None:
        self._regimes, self._inputs = regimes, inputs
        self._able = Counter[str]()  # cases that can have such a regime, by form

    def case(self, case: Case, features: Features) -> Case:
        """Return the case, or what it becomes: its sizes stay, a layer gets values of its own."""
        place = case_index(case)
        plain = case.regime == PLAIN["regime"] and min(case.batch, case.queries, case.keys) > 0
        if not plain or place < FIRST or place % REPEAT_EVERY == 0:
            return case
        able = self._able[case.form]
        regime = self._regimes[able // REPLACED_EVERY % len(self._regimes)]
        own = "distinct" if case.form == "mha" and "distinct" in self._inputs else case.inputs
        if not can_coexist(features | {"regime": regime, "inputs": own}):
            return case
        self._able[case.form] += 1
        return case if able % REPLACED_EVERY else case.replace(regime=regime, inputs=own)


def cover(offer: Offer, rng: random.Random) -> Iterator[Features]:
    """Yield features until every possible pair of offered values has occurred together."""
    axes = [axis for axis, values in offer.items() if len(values) > 1]
    pairs = [
        ((a, u), (b, v))
        for a, b in itertools.combinations(axes, 2)
        for u in offer[a]
        for v in offer[b]
    ]
    left = set(pairs)
    for pair in pairs:
        if pair not in left:
            continue
        left.discard(pair)
        drawn = [
            f for f in (complete_features(offer, dict(pair), rng) for _ in range(ATTEMPTS)) if f
        ]
        if drawn:
            best = max(drawn, key=lambda features: len(left & _pairs(features, axes)))
            left -= _pairs(best, axes)
            yield best


def _pairs(features: Features, axes: list[str]) -> set[Pair]:
    """Return the pairs that a case shows: without a row or a key, those of being empty alone."""
    pairs = set(itertools.combinations([(axis, features[axis]) for axis in axes], 2))
    empty = ("size", "empty")
    return {pair for pair in pairs if empty in pair} if features["size"] == empty[1] else pairs


def _random(offer: Offer, rng: random.Random) -> Iterator[Features]:
    """Yield random features for ever, half of the axes plain so that single causes show too."""
    while True:
        fixed: Features = {}
        for axis, values in offer.items():
            plain = PLAIN[axis]
            open_axis = axis in {"form", "dtype", "heads"} or plain not in values
            if not open_axis and rng.random() < HALF and fits_features(fixed, axis, plain):
                fixed[axis] = plain
        features = complete_features(offer, fixed, rng) or complete_features(offer, {}, rng)
        if features is not None:
            yield features


def _case(features: Features, sizes: Sizes, seed: int, index: int) -> Case:
    """Return a case with these features and sizes, and a seed of its own."""
    named = {a: v for a, v in features.items() if a not in {"heads", "size", "kv_heads", "v_dim"}}
    return Case(seed=seed % RUNS * SEED_STRIDE + index, **sizes, **named)  # type: ignore[arg-type]  # fields vary in type
