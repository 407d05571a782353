"""Small cases, one for each feature that a convention claims beyond its plain case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mha_parity.cases.clashes import can_coexist

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer

# What a call is made of; dtypes are tried separately, and other axes change values alone.
AXES = (
    "layout", "inputs", "projection", "attn", "padding", "masked_rows", "bias", "bias_kv",
    "zero_attn", "out_proj", "scale", "kv_heads", "v_dim", "weights", "heads", "size", "memory",
)  # fmt: skip
WITH_SAMPLES = ("batch_first", "sequence_first")  # layouts with an axis of samples
KEYS = 7  # unlike the queries and every other size of the plain cases
BATCH = 3  # unlike the heads
SIZES: dict[tuple[str, str], dict[str, Any]] = {
    ("inputs", "cross"): {"keys": KEYS},
    ("inputs", "distinct"): {"keys": KEYS},
    # Without the axis of samples, tiles over keys may become tiles over the width of a head.
    ("layout", "unbatched"): {"batch": 1, "head_dim": 67},
    ("layout", "batch_first"): {"batch": BATCH},
    ("layout", "sequence_first"): {"batch": BATCH},
    ("heads", "one"): {"heads_count": 1},
    ("heads", "many"): {"heads_count": 2},
    ("kv_heads", "fewer"): {"heads_count": 4, "kv_heads_count": 2},
    ("size", "medium"): {"queries": 70, "keys": 70},
    ("size", "ones"): {"queries": 1, "keys": 1},
}


def claimed_cases(plain: Case, offer: Offer) -> Iterator[tuple[str, str, Case]]:
    """Yield axis, value and a case that has it, for each value offered that ``plain`` lacks."""
    for axis in AXES:
        for value in offer[axis]:
            if value != getattr(plain, axis):
                for base in _bases(plain, axis, offer):
                    case = _with(base, axis, value, offer)
                    if is_drawn(case, offer) and getattr(case, axis) == value:
                        yield axis, value, case


def _bases(plain: Case, axis: str, offer: Offer) -> list[Case]:
    """Return the plain case; for memory those of other layouts and of masks, which take views."""
    if axis != "memory":
        return [plain]
    others = [("layout", each) for each in WITH_SAMPLES if each in offer["layout"]]
    others += [(mask, each) for mask in ("attn", "padding") for each in offer[mask]]
    cases = (plain.replace(**{name: value}) for name, value in others)
    return list(dict.fromkeys((plain, *cases)))


def _with(plain: Case, axis: str, value: str, offer: Offer) -> Case:
    """Return the plain case with one feature more, and the sizes that this takes."""
    changes = SIZES.get((axis, value), {})
    if (axis, value) == ("layout", "unbatched") and "cross" in offer["inputs"]:
        changes = {**changes, "inputs": "cross", "keys": KEYS}  # lengths may be taken for heads
    if axis == "v_dim":
        return plain.replace(v_head_dim=plain.head_dim + 1)
    if (axis, value) == ("projection", "separate"):
        width = plain.embed_dim
        changes = {"inputs": "distinct", "keys": KEYS, "kdim": width + 1, "vdim": width + 3}
    if (axis, value) == ("masked_rows", "some"):
        masks = [(each, kind) for each in ("attn", "padding") for kind in offer[each]]
        changes = dict([each for each in masks if each[1] not in {"none", "causal"}][:1])
    fields = {} if axis in {"heads", "size", "kv_heads"} else {axis: value}
    return plain.replace(**fields, **changes)


def is_drawn(case: Case, offer: Offer) -> bool:
    """Return whether a run could draw a case of these features."""
    features = case.features()
    free = {"size", "regime", "dtype", "gradients"}
    offered = all(features[axis] in offer[axis] for axis in features if axis not in free)
    return offered and can_coexist(features)
