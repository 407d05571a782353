"""Which features can occur in one problem, and whole features filled in around some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.core.features import AXES, EXTREME_VALUES

if TYPE_CHECKING:
    import random

    from mha_parity.core.features import Features, Offer


# Regimes that shape query, key and value alike.
OF_ONE_ARRAY = frozenset({"normal", "tiny", "peaky", "huge", "ties", "zeros"})
# Pairs of features that cannot occur in one problem, each with the reason.
CLASHES: tuple[tuple[Features, Features], ...] = (
    # Q, K and V come ready: nothing of a layer's own is there.
    *(
        ({"form": "qkv"}, {axis: v})
        for axis, v in (
            ("projection", "packed"),
            ("projection", "separate"),
            ("projection", "by_head"),
            ("projection", "shared"),
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
            ("projection", "one_array"),
            ("scale", "given"),
            ("v_dim", "other"),
        )
    ),
    *(
        ({"form": "mha", "kv_heads": "fewer"}, {"projection": v})
        for v in ("separate", "by_head", "shared")
    ),
    # What one array is three times has one width, one length, and values of one kind.
    *(
        ({"projection": "one_array"}, {axis: v})
        for axis, v in (
            ("inputs", "cross"),
            ("kv_heads", "fewer"),
            ("v_dim", "other"),
            *(("regime", v) for v in AXES["regime"] if v not in OF_ONE_ARRAY),
        )
    ),
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
    # The columns of one head are made small for it, which would be those of all.
    ({"projection": "shared"}, {"regime": "largest_value"}),
    # A sum of large numbers of both signs overflows or not by its order.
    ({"out_proj": "general"}, {"regime": "largest_value"}),
    # What a row without keys is made of (NaN, 0, the mean of V) would decide.
    *(({"masked_rows": "some"}, {"regime": regime}) for regime in EXTREME_VALUES),
)


GROUPED_LAYER: Features = {"form": "mha", "kv_heads": "fewer"}

# For each feature, what it cannot occur with: pairs, since a run asks a million times.
_EXCLUDED: dict[tuple[str, str], list[tuple[tuple[str, str], ...]]] = {}
for _left, _right in CLASHES:
    _clash = _left | _right
    for _item in _clash.items():
        _EXCLUDED.setdefault(_item, []).append(tuple(_clash.items() - {_item}))


def can_coexist(features: Features) -> bool:
    """Return whether the (perhaps partial) features can occur in one problem."""
    return all(fits_features(features, axis, value) for axis, value in features.items())


def fits_features(features: Features, axis: str, value: str) -> bool:
    """Return whether ``axis=value`` clashes with nothing that ``features`` already has."""
    for others in _EXCLUDED.get((axis, value), ()):
        for other, clashing in others:
            if features.get(other) != clashing:
                break
        else:
            return False
    return True


def complete_features(offer: Offer, fixed: Features, rng: random.Random) -> Features | None:
    """Return whole features that contain ``fixed``, or None where none are possible."""
    # Where functions of Q, K and V are drawn, whose keys are grouped as they are, layers are not.
    excluded = GROUPED_LAYER if "qkv" in offer["form"] else {}
    if not can_coexist(fixed) or (excluded and excluded.items() <= fixed.items()):
        return None
    features = dict(fixed)
    axes = [axis for axis in offer if axis not in fixed]
    rng.shuffle(axes)
    for axis in axes:
        values = [value for value in offer[axis] if fits_features(features, axis, value)]
        if axis in excluded:
            values = [v for v in values if not excluded.items() <= {*features.items(), (axis, v)}]
        if not values:
            return None
        features[axis] = rng.choice(values)
    return features
