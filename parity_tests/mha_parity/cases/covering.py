"""Draws cases so that every pair of offered feature values occurs together; the rest is random."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import TYPE_CHECKING

from mha_parity.cases.sizes import SizeDraw
from mha_parity.core.case import Case
from mha_parity.core.features import AXES, EXTREME_VALUES, PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.features import Offer

Features = dict[str, str]
Pair = tuple[tuple[str, str], tuple[str, str]]
HALF = 0.5
# Takes no part in the draw: a run with gradients has the cases of a run without.
UNCOVERED_AXIS = "gradients"
SEED_STRIDE = 1_000_003  # the distance between the seeds of two runs' cases
# Runs whose seeds fit into 32 bits; the run after the last has the values of the first again.
RUNS = 2**32 // SEED_STRIDE
# Regimes that replace the normal one in drawn cases: one in so many of those that can have them.
# The first cases stay plain, and so do those whose calls are repeated.
REPLACED_EVERY = 3
FIRST, REPEAT_EVERY = 24, 8  # calls are repeated on the first cases, and on each eighth of all
ATTEMPTS = 8  # candidates per greedy step: more make the list a little shorter, and slower

# Pairs of features that cannot occur in one problem, each with the reason.
CLASHES: tuple[tuple[Features, Features], ...] = (
    # Q, K and V come ready: nothing of a layer's own is there.
    *(
        ({"form": "qkv"}, {axis: v})
        for axis, v in (
            ("projection", "packed"),
            ("projection", "separate"),
            ("bias", "yes"),
            ("bias", "in"),
            ("bias", "out"),
            ("bias_kv", "yes"),
            ("zero_attn", "yes"),
            ("out_proj", "general"),
            ("inputs", "distinct"),
        )
    ),
    # A layer of torch has one head width and its own scale; grouped heads are weights repeated.
    *(
        ({"form": "mha"}, {axis: v})
        for axis, v in (
            ("projection", "none"),
            ("scale", "given"),
            ("v_dim", "other"),
        )
    ),
    ({"form": "mha", "kv_heads": "fewer"}, {"projection": "separate"}),
    # Unlike widths need unlike inputs.
    ({"projection": "separate"}, {"inputs": "self"}),
    ({"projection": "separate"}, {"inputs": "cross"}),
    # One head cannot be grouped.
    ({"kv_heads": "fewer"}, {"heads": "one"}),
    # These regimes work through the biases of a layer.
    *(
        ({"form": "mha", "bias": bias}, {"regime": regime})
        for bias in ("no", "out")
        for regime in ("very_negative", "offset", "rising", "falling")
    ),
    ({"bias": "out"}, {"out_proj": "identity"}),
    # An appended key is visible to every row.
    ({"bias_kv": "yes"}, {"masked_rows": "some"}),
    ({"zero_attn": "yes"}, {"masked_rows": "some"}),
    # A row is masked by a mask; the causal rule always leaves key 0.
    ({"masked_rows": "some"}, {"attn": "none", "padding": "none"}),
    ({"masked_rows": "some"}, {"attn": "causal", "padding": "none"}),
    # Nothing to hide and nothing to shape on an empty axis.
    *(
        ({"size": "empty"}, {axis: v})
        for axis, v in (
            *(("padding", v) for v in ("bool", "float", "lengths")),
            *(("attn", v) for v in AXES["attn"] if v != "none"),
            *(("regime", v) for v in AXES["regime"] if v != "normal"),
            *(("memory", v) for v in AXES["memory"] if v != "c"),
            ("masked_rows", "some"),
            ("layout", "unbatched"),
            ("kv_heads", "fewer"),
            ("v_dim", "other"),
        )
    ),
    ({"size": "equal"}, {"heads": "one"}),
    # A layer needs values of its own: in query and key infinity leaves no score a number.
    *(
        ({"form": "mha"} | clash, {"regime": regime})
        for regime in EXTREME_VALUES
        for clash in ({"inputs": "self"}, {"inputs": "cross"})
    ),
    # Where torch's bfloat16 product reads past a row, infinity reaches other keys in a projection.
    ({"form": "mha", "dtype": "bfloat16"}, {"regime": "infinite_value"}),
    # A sum of large numbers of both signs overflows or not by its order.
    ({"out_proj": "general"}, {"regime": "largest_value"}),
    # What a row without keys is made of (NaN, 0, the mean of V) would decide.
    *(({"masked_rows": "some"}, {"regime": regime}) for regime in EXTREME_VALUES),
)


GROUPED_LAYER: Features = {"form": "mha", "kv_heads": "fewer"}

# For each feature, what it cannot occur with.
_EXCLUDED: dict[tuple[str, str], list[Features]] = {}
for _left, _right in CLASHES:
    _clash = _left | _right
    for _item in _clash.items():
        _EXCLUDED.setdefault(_item, []).append(dict(_clash.items() - {_item}))


def possible(features: Features) -> bool:
    """Return whether the (perhaps partial) features can occur in one problem."""
    return all(_fits(features, axis, value) for axis, value in features.items())


def _fits(features: Features, axis: str, value: str) -> bool:
    """Return whether ``axis=value`` clashes with nothing that ``features`` already has."""
    excluded = _EXCLUDED.get((axis, value), ())
    return not any(others.items() <= features.items() for others in excluded)


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
        return any(_fill(drawn, alone | {axis: value}, rng) for _ in range(attempts))

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
    """Return ``count`` cases, as ``drawing`` yields them."""
    return list(drawing(offer, count, seed))


def drawing(offer: Offer, count: int, seed: int) -> Iterator[Case]:
    """Yield ``count`` cases: the pairwise cover first, then random ones.

    Where ``count`` is smaller than the cover, the first ``count`` cases of it: they cover the most.
    All of them ask for gradients where the offer has them.
    """
    rng = random.Random(seed)
    drawn, sizes = _drawn(offer), SizeDraw(random.Random(f"sizes of {seed}"))
    features = itertools.chain(cover(drawn, rng), _random(drawn, rng))
    replaced = _Replacing(_extreme(offer), offer["inputs"])
    for i, each in enumerate(itertools.islice(features, count)):
        case = _case(each | {UNCOVERED_AXIS: offer[UNCOVERED_AXIS][-1]}, sizes, seed, i)
        yield replaced.case(case, each)


class _Replacing:
    """Replace the normal regime in some of the cases of one run, one case after the other."""

    def __init__(self, regimes: tuple[str, ...], inputs: tuple[str, ...]) -> None:
        self._regimes, self._inputs = regimes, inputs
        self._able = Counter[str]()  # cases that can have such a regime, by form

    def case(self, case: Case, features: Features) -> Case:
        """Return the case, or what it becomes: its sizes stay, a layer gets values of its own."""
        place = case_index(case)
        plain = case.regime == PLAIN["regime"] and min(case.batch, case.queries, case.keys) > 0
        if not self._regimes or not plain or place < FIRST or place % REPEAT_EVERY == 0:
            return case
        able = self._able[case.form]
        regime = self._regimes[able // REPLACED_EVERY % len(self._regimes)]
        own = "distinct" if case.form == "mha" and "distinct" in self._inputs else case.inputs
        if not possible(features | {"regime": regime, "inputs": own}):
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
        drawn = [f for f in (_fill(offer, dict(pair), rng) for _ in range(ATTEMPTS)) if f]
        if drawn:
            best = max(drawn, key=lambda features: len(left & _pairs(features, axes)))
            left -= _pairs(best, axes)
            yield best


def _pairs(features: Features, axes: list[str]) -> set[Pair]:
    """Return the pairs that a case shows: without a row or a key, those of being empty alone."""
    pairs = set(itertools.combinations([(axis, features[axis]) for axis in axes], 2))
    empty = ("size", "empty")
    return {pair for pair in pairs if empty in pair} if features["size"] == empty[1] else pairs


def _fill(offer: Offer, fixed: Features, rng: random.Random) -> Features | None:
    """Return whole features that contain ``fixed``, or None where none are possible."""
    # Where functions of Q, K and V are drawn, whose keys are grouped as they are, layers are not.
    excluded = GROUPED_LAYER if "qkv" in offer["form"] else {}
    if not possible(fixed) or (excluded and excluded.items() <= fixed.items()):
        return None
    features = dict(fixed)
    axes = [axis for axis in offer if axis not in fixed]
    rng.shuffle(axes)
    for axis in axes:
        values = [value for value in offer[axis] if _fits(features, axis, value)]
        if axis in excluded:
            values = [v for v in values if not excluded.items() <= {*features.items(), (axis, v)}]
        if not values:
            return None
        features[axis] = rng.choice(values)
    return features


def _random(offer: Offer, rng: random.Random) -> Iterator[Features]:
    """Yield random features for ever, half of the axes plain so that single causes show too."""
    while True:
        fixed: Features = {}
        for axis, values in offer.items():
            plain = PLAIN[axis]
            open_axis = axis in {"form", "dtype", "heads"} or plain not in values
            if not open_axis and rng.random() < HALF and _fits(fixed, axis, plain):
                fixed[axis] = plain
        features = _fill(offer, fixed, rng) or _fill(offer, {}, rng)
        if features is not None:
            yield features


def _case(features: Features, sizes: SizeDraw, seed: int, index: int) -> Case:
    """Return a case with these features: sizes drawn to fit, and a seed of its own."""
    named = {a: v for a, v in features.items() if a not in {"heads", "size", "kv_heads", "v_dim"}}
    drawn = sizes.sizes(features)
    return Case(seed=seed % RUNS * SEED_STRIDE + index, **drawn, **named)  # type: ignore[arg-type]  # fields vary in type
