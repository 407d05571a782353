"""Interactions of three and more properties that every run has, where its target offers them.

Pairs of features leave a choice: beside cross-attention, `is_causal` may always have come with a
padding mask, or with as many queries as keys. An interaction that no case has had by a given place
gets a case made for it, plain on every axis that the interaction leaves open.
"""

from __future__ import annotations

import itertools
from functools import partial
from operator import eq, gt, lt
from typing import TYPE_CHECKING

from mha_parity.cases.feature_interaction import Interaction, changed_to, has_size, made_equal
from mha_parity.cases.generate import query_shared_with, scale_factor
from mha_parity.cases.masks import may_hide_by_numbers
from mha_parity.cases.sizes import (
    LONG,
    LONG_LIMIT,
    PLAIN_LENGTHS,
    SHORT,
    SizeDraw,
    judging_microseconds,
)
from mha_parity.core.case import BLOCK

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Mapping

    from mha_parity.cases.sizes import Sizes
    from mha_parity.core.case import Case
    from mha_parity.core.features import Features, Offer


EVERY = 2  # made cases have odd places: calls are repeated on even ones
# By these places most runs have had equal arguments and rare sizes by chance, and single lengths.
LATE, LATER = 200, 300
PATIENCE = 250  # the places after which a case that no seed makes is given up
ATTEMPTS = 24
SOON_COMPUTED = tuple(n for n in LONG if n <= 2 * BLOCK + 1)
TILE, SMALL_TILE = 256, 16  # the longest tile of common kernels, and a short one
SEVERAL = ("batch_first", "sequence_first")
DISTINCT = ("cross", "distinct", "self")


class MissingInteractions:
    """The interactions that no case of a run has had so far, and cases made for them."""

    def __init__(self, offer: Offer, rng: random.Random) -> None:
        """Take what is drawn of an offer; what it excludes is not missed."""
        self._offer, self._rng, self._sizes = offer, rng, SizeDraw(rng)
        self._left = [
            each for each in INTERACTIONS if any(each.drawn(offer, rng) for _ in range(ATTEMPTS))
        ]

    def made(self, place: int, make: Callable[[Features, Sizes], Case]) -> Case | None:
        """Return a case for the first interaction that belongs at a place and is missing."""
        if place % EVERY == 0:
            return None
        for each in self._left:
            if each.first <= place < each.first + PATIENCE:
                for _ in range(ATTEMPTS):
                    features = each.drawn(self._offer, self._rng)
                    if features is None:
                        continue
                    sizes = self._sizes.changed(features, each.change)
                    case = make(features, sizes)
                    costs_little = judging_microseconds(sizes, features) <= LONG_LIMIT
                    if costs_little and each.shown_by(case, self._offer):
                        return case
        return None

    def lacks(self, interaction: Interaction) -> bool:
        """Return whether an interaction is drawn, and no case has had it."""
        return interaction in self._left

    def note(self, case: Case) -> None:
        """Take note of a case of the run."""
        self._left = [each for each in self._left if not each.shown_by(case, self._offer)]


def _interactions() -> Iterable[Interaction]:
    """Yield the interactions, those that most targets offer first."""
    yield from _causal("causal", {})
    yield Interaction(
        name="causal, weights asked for", holds=lambda c: min(c.queries, c.keys) > 1,
        features={
            "attn": ("causal",), "padding": ("none",), "weights": ("per_head", "averaged"),
            "size": ("small",),
        },
    )  # fmt: skip
    yield from _causal("causal, grouped heads", {"kv_heads": ("fewer",)})
    yield from _read_twice()
    yield from _causal("causal, padding", {"padding": ("bool", "lengths", "float")})
    yield from _causal("causal, both long", {}, size="medium", among=SOON_COMPUTED)
    for kind in ("bool", "float", "lengths"):
        yield Interaction(
            name=f"{kind} padding, S > {BLOCK}",
            features={"padding": (kind,), "attn": ("none", "causal"), "size": ("medium",)},
            holds=lambda case: case.keys > BLOCK,
            change=lambda _, rng: {"keys": rng.choice(SOON_COMPUTED)},
        )
    yield from _causal("causal, bias_kv", {"bias_kv": ("yes",)})
    yield from _causal("causal, zero_attn", {"zero_attn": ("yes",)})
    yield from _scales()
    yield from _arguments()
    yield from _sizes()


def _causal(
    name: str,
    features: Mapping[str, tuple[str, ...]],
    size: str = "small",
    among: tuple[int, ...] = PLAIN_LENGTHS,
) -> Iterable[Interaction]:
    """Yield the causal rule with fewer queries than keys, then with more."""
    alone = {"attn": ("causal",), "padding": ("none",), "inputs": ("cross", "distinct")}
    orders: tuple[tuple[str, Callable[[int, int], bool]], ...] = ("L < S", lt), ("L > S", gt)

    def change(_: Mapping[str, int], rng: random.Random) -> Mapping[str, int]:
        return dict(zip(("queries", "keys"), rng.sample(among, 2), strict=True))

    for order, compare in orders:

        def holds(case: Case, compare: Callable[[int, int], bool] = compare) -> bool:
            is_long = size != "medium" or min(case.queries, case.keys) > BLOCK
            return is_long and compare(case.queries, case.keys)

        yield Interaction(
            name=f"{name}, {order}", features={**alone, "size": (size,), **features},
            holds=holds, change=change,
        )  # fmt: skip


def _read_twice() -> Iterable[Interaction]:
    """Yield masks that fit a second reading: their first axis has the length of another."""
    kept = {"layout": SEVERAL, "size": ("small",), "inputs": DISTINCT}
    for kind in ("bool", "float"):
        yield Interaction(
            name=f"{kind} attn_mask (L, S), N == L",
            features={**kept, "attn": (f"{kind}2d",), "padding": ("none",)},
            holds=lambda c: c.batch == c.queries, change=made_equal("batch", "queries"),
        )  # fmt: skip
        yield Interaction(
            name=f"{kind} key_padding_mask (N, S), N == L",
            features={**kept, "padding": (kind,), "attn": ("none", "causal")},
            holds=lambda c: c.batch == c.queries, change=made_equal("batch", "queries"),
        )  # fmt: skip
        yield Interaction(
            name=f"{kind} attn_mask (N H, L, S), N == H",
            features={**kept, "attn": (f"{kind}3d",), "padding": ("none",), "heads": ("many",)},
            holds=lambda c: c.batch == c.heads_count, change=made_equal("batch", "heads_count"),
        )  # fmt: skip


def _scales() -> Iterable[Interaction]:
    """Yield a scale of 0, which is no default, and one that turns the order of the keys."""
    signs: Mapping[str, Callable[[float], bool]] = {"0": lambda x: x == 0, "< 0": lambda x: x < 0}
    for name, suits in signs.items():

        def holds(case: Case, suits: Callable[[float], bool] = suits) -> bool:
            factor = scale_factor(case)
            return factor is not None and suits(factor)

        yield Interaction(
            name=f"scale {name}", features={"scale": ("given",), "size": ("small",)}, holds=holds
        )


def _arguments() -> Iterable[Interaction]:
    """Yield what arrays may share and which widths may be equal."""
    shared: Mapping[str, Callable[[Case], bool]] = {
        "query is key": lambda c: query_shared_with(c) == "key",
        "query is value": lambda c: query_shared_with(c) == "value",
    }
    for name, holds in shared.items():
        features = {"inputs": ("distinct",), "projection": ("packed",), "size": ("small",)}
        yield Interaction(
            name=name,
            features=features,
            holds=holds,
            change=made_equal("keys", "queries"),
            first=LATE,
        )
    separate: Mapping[str, Callable[[Case], bool]] = {
        "kdim == embed_dim": lambda c: c.kdim == c.embed_dim,
        "vdim == embed_dim": lambda c: c.vdim == c.embed_dim,
        "kdim == vdim": lambda c: c.kdim == c.vdim,
    }
    for name, holds in separate.items():
        features = {"projection": ("separate",), "size": ("small",)}
        yield Interaction(name=name, features=features, holds=holds, first=LATE)
    yield Interaction(
        name="a row hidden by the least finite number", first=LATE,
        features={"attn": ("float2d", "float3d"), "padding": ("none",), "masked_rows": ("some",)},
        holds=lambda c: may_hide_by_numbers(c, c.seed),
    )  # fmt: skip


def _sizes() -> Iterable[Interaction]:
    """Yield sizes that so few cases have that an error at them may not show in any."""
    above, tail = 2 * TILE + 1, 3 * TILE - 1
    lengths: tuple[tuple[str, str, int, Callable[[int], bool]], ...] = (
        ("S > 1024", "keys", 8 * TILE - 1, lambda n: n > 4 * TILE),
        ("S, a tail of one", "keys", above, lambda n: n > TILE and n % TILE == 1),
        ("S, a tail that lacks one", "keys", tail, lambda n: n > TILE and n % TILE == TILE - 1),
        ("L, a tail of one", "queries", above, lambda n: n > TILE and n % TILE == 1),
        ("L, a tail that lacks one", "queries", tail, lambda n: n > TILE and n % TILE == TILE - 1),
    )
    for name, axis, value, suits in lengths:
        yield Interaction(
            name=name, features={"size": ("medium",), "inputs": ("cross", "distinct")},
            holds=has_size(axis, suits), change=changed_to({axis: value}), first=LATE,
        )  # fmt: skip
    whole: Mapping[str, tuple[str, Sizes, Mapping[str, tuple[str, ...]]]] = {
        "N == 64": ("batch", {"batch": 64}, {"layout": SEVERAL}),
        "H == 32": ("heads_count", {"heads_count": 32}, {"kv_heads": ("equal",)}),
        "E == 288": ("embed_dim", {"heads_count": 6, "head_dim": 48}, {"kv_heads": ("equal",)}),
    }
    for name, (axis, sizes, features) in whole.items():
        yield Interaction(
            name=name, features={"size": ("small",), "heads": ("many",), **features},
            holds=has_size(axis, partial(eq, int(name[5:]))), change=changed_to(sizes), first=LATE,
        )  # fmt: skip
    for axis, value in itertools.product(("queries", "keys"), (n for n in SHORT if n > SMALL_TILE)):
        yield Interaction(
            name=f"{axis} == {value}", features={"size": ("small",)},
            holds=has_size(axis, partial(eq, value)), change=changed_to({axis: value}), first=LATER,
        )  # fmt: skip


INTERACTIONS = tuple(_interactions())
