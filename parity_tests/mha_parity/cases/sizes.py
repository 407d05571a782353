"""Draw the sizes of a case: half small and unlike each other, half from rounds over every size.

Kernels have a branch where a size crosses a tile, a vector or a power of two, and tests of one
shape never meet it. Each size has a list of values, dealt in a random order, each once a round:
head widths around every power of two up to 128, every length to 33 and then those around powers of
two and the edges of tiles up to 2,100, heads to 32, batches to 64, and pairs of equal sizes.
What one axis may take is limited by the time that the case costs; few layers are as wide as real
ones are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mha_parity.core.case import BLOCK

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from mha_parity.core.features import Features

    Change = Callable[[Mapping[str, int], random.Random], Mapping[str, int]]

Sizes = dict[str, int]

HEAD_DIMS = (
    *(*range(2, 18), 20, 24, 31, 32, 33, 40, 48, 56, 59),
    *(63, 64, 65, 72, 80, 96, 111, 112, 127, 128),
)
HEADS = (*range(2, 13), 15, 16, 17, 24, 32)
BATCHES = (*range(2, 10), 12, 16, 32, 33, 64)
SHORT = (*range(2, 34), 40, 48, 63, 64)
LONGEST = 2100
EDGES = tuple(2**power + step for power in range(6, 12) for step in (-1, 0, 1))
TAILS = (*(3 * tile + step for tile in (64, 128, 256) for step in (-1, 1)), 5 * 256 - 1)
LONG = tuple(n for n in sorted({*EDGES, *TAILS, LONGEST}) if n > BLOCK)
LAYERS = ((6, 48), (8, 64), (12, 64))  # heads and head width of common models: E = 288, 512, 768
LAYER_EVERY = 120  # one case in 120 is as wide as those
WIDEST_FLOAT64 = 512  # long double takes long
# Cases for which others are waited for: at these widths rounding may mix an error of an eighth
# through out_proj unseen, but in float64.
WAIT = 150
GROUPED = ((4, 2), (6, 2), (6, 3), (4, 1), (8, 2), (8, 1), (9, 3), (12, 4), (16, 4))
PLAIN_HEADS, PLAIN_HEAD_DIMS = (2, 3, 4, 5), (2, 3, 5, 6, 7, 9, 11)
PLAIN_BATCHES, PLAIN_LENGTHS = (2, 3, 4), (4, 5, 6, 7, 9, 10, 11, 13)
# Pairs of sizes that are made equal: a mask or a reshape that takes one for the other fits then.
EQUAL_SIZES = (
    ("batch", "queries"), ("batch", "keys"), ("batch", "heads_count"), ("queries", "heads_count"),
    ("keys", "heads_count"), ("keys", "head_dim"), ("queries", "head_dim"), ("batch", "head_dim"),
    ("queries", "keys"),
)  # fmt: skip
FOLDED = ("queries", "keys")  # made equal to N H, or to E
TWO_READINGS = 0.5  # of equal sizes with a 2-D mask: N = L, so that (L, S) may be read as (N, S)
# kdim and vdim less the width: wider, narrower, equal to each other or, one of them, to the width.
KV_WIDTHS = (
    (1, 3), (2, 4), (8, 16), (1, 4), (16, 3), (2, 2), (0, 3), (1, 0), (-1, 2), (2, -1), (-1, -1),
)  # fmt: skip
SHARED = 0.85  # of layers with three inputs of one width: L = S, so that one may be another
DEALT, COINCIDENT, BROAD_AND_LONG = 0.8, 0.25, 0.25
LONG_SHARES = (0.4, 0.3, 0.3)  # of long cases: keys, queries, both
FULL_LENGTH = 0.02  # of long cases: what makes self-attention past a thousand keys possible
# One long case of self-attention in 12 is past 256 keys, which a byte cannot count.
BEYOND_EVERY, BYTE = 12, 256
# Microseconds that a score, a weight and an element of a row cost oracle, bound and judge together.
PER_SCORE, PER_WEIGHT, PER_ELEMENT = 0.3, 0.15, 0.25
LIMIT, LONG_LIMIT, FULL_LIMIT = 11e3, 25e3, 350e3


class Round:
    """Values dealt in a random order, each once before any comes again."""

    def __init__(self, values: Sequence[int], rng: random.Random) -> None:
        """Take the values; the first round is shuffled when it is dealt."""
        self._values, self._rng = tuple(values), rng
        self._left: list[int] = []

    def next_fitting(self, fits: Callable[[int], bool]) -> int | None:
        """Return the next value that fits; those that do not keep their place in the round."""
        for _ in range(2):
            for i, value in enumerate(self._left):
                if fits(value):
                    return self._left.pop(i)
            more = [value for value in self._values if value not in self._left]
            self._rng.shuffle(more)
            self._left += more
        return None


class SizeDraw:
    """The sizes of the cases of one run, one case after the other."""

    def __init__(self, rng: random.Random) -> None:
        """Start the rounds with this generator."""
        self.rng = rng
        # In 16 bits an error of an eighth may be rounding: what is dealt there is dealt again.
        self.rounds_of = {in_16_bits: _rounds(rng) for in_16_bits in (False, True)}
        self.rounds = self.rounds_of[False]
        self.drawn = self.layers = self.long_self = 0

    def sizes(self, features: Features) -> Sizes:
        """Return sizes that fit the features, every length of self-attention once."""
        kind = features["size"]
        self.drawn += 1
        self.rounds = self.rounds_of[features["dtype"] in {"float16", "bfloat16"}]
        sizes = self._plain(features)
        least = self._least(features) if kind in {"ones", "empty"} else ""
        dealt = self.rng.random() < DEALT
        if kind == "medium":
            self._lengthen(sizes, features)
        elif kind == "equal":
            self._square(sizes, features, dealt=dealt)
        elif kind == "small" and dealt and self.rng.random() < COINCIDENT:
            self._coincide(sizes, features)
        elif kind != "empty" and dealt:
            self._deal_short(sizes, features, least)
        if kind == "small":
            self._widen(sizes, features)
        if least:
            sizes[least] = int(kind == "ones")
        three = features["inputs"] == "distinct" and features["projection"] != "separate"
        if three and kind == "small" and self.rng.random() < SHARED:
            kept = self.rng.choice(FOLDED)
            sizes["queries"] = sizes["keys"] = sizes[kept]
        if features["inputs"] == "self":
            sizes["queries"] = sizes["keys"] = _one_length(sizes, kind)
        return sizes | self._derived(sizes, features)

    def changed(self, features: Features, change: Change) -> Sizes:
        """Return small sizes, some of them changed, with those that follow from them."""
        sizes = self._plain(features)
        sizes["keys"] = sizes["queries"] if features["inputs"] == "self" else sizes["keys"]
        changed = change(sizes, self.rng)
        sizes |= changed
        if features["inputs"] == "self":
            length = changed.get("keys", sizes["queries"])
            sizes |= {"queries": length, "keys": length}
        sizes["head_dim"] += sizes["heads_count"] == sizes["head_dim"]
        return sizes | self._derived(sizes, features)

    def _plain(self, features: Features) -> Sizes:
        """Return small sizes that differ from each other."""
        rng = self.rng
        heads = 1 if features["heads"] == "one" else rng.choice(PLAIN_HEADS)
        head_dim = rng.choice([d for d in PLAIN_HEAD_DIMS if d != heads])
        batch = rng.choice([n for n in PLAIN_BATCHES if n != heads])
        queries, keys = rng.sample(PLAIN_LENGTHS, 2)
        if features["layout"] == "unbatched":
            batch = 1
        if features["kv_heads"] == "fewer":
            heads = rng.choice(GROUPED)[0]
        return {
            "batch": batch, "queries": queries, "keys": keys, "heads_count": heads,
            "head_dim": head_dim,
        }  # fmt: skip

    def _deal(
        self, sizes: Sizes, features: Features, limit: float, axes: Sequence[str], least: int = 0
    ) -> None:
        """Replace sizes by the next of their rounds, axis by axis in a random order.

        ``least`` is the least of the long ones.
        """
        for axis in self.rng.sample(axes, len(axes)):
            name = axis.removeprefix("long ")
            if not self._free(name, features):
                continue

            def fits(value: int, name: str = name, least: int = least * (axis != name)) -> bool:
                tried = sizes | {name: value}
                same = tried["heads_count"] == tried["head_dim"] and features["size"] != "equal"
                cheap = judging_microseconds(tried, features) <= limit
                return value >= least and cheap and not same

            sizes[name] = self.rounds[axis].next_fitting(fits) or sizes[name]

    @staticmethod
    def _free(name: str, features: Features) -> bool:
        """Return whether the features leave this size open."""
        grouped = features["kv_heads"] == "fewer"
        fixed = {
            "batch": features["layout"] == "unbatched",
            "heads_count": features["heads"] == "one" or grouped,
        }
        return not fixed.get(name, False)

    def _lengthen(self, sizes: Sizes, features: Features) -> None:
        """Make keys, queries or both longer than a block."""
        rng = self.rng
        sizes["batch"] = min(sizes["batch"], 2)
        if self._free("heads_count", features):
            sizes["heads_count"] = min(sizes["heads_count"], 2)
        sizes["head_dim"] = min(sizes["head_dim"], 5)
        sizes["head_dim"] += sizes["heads_count"] == sizes["head_dim"]
        limit = FULL_LIMIT if rng.random() < FULL_LENGTH else LONG_LIMIT
        long = self._long(features)
        least = BLOCK + 1
        if features["inputs"] == "self":
            self.long_self += 1
            if self.long_self % BEYOND_EVERY == BEYOND_EVERY // 2:
                least, limit = BYTE + 1, FULL_LIMIT
        sizes |= dict.fromkeys(long, least)
        broad = ("head_dim",) * (rng.random() < BROAD_AND_LONG)
        axes = (*(f"long {name}" for name in long), *broad)
        self._deal(sizes, features, limit, axes, least=least)

    def _long(self, features: Features) -> tuple[str, ...]:
        """Return which lengths are long; in self-attention one stands for both."""
        if features["inputs"] == "self":
            return ("keys",)
        return self.rng.choices((("keys",), ("queries",), ("keys", "queries")), LONG_SHARES)[0]

    def _square(self, sizes: Sizes, features: Features, *, dealt: bool) -> None:
        """Make L = S and H = D."""
        if self._free("heads_count", features):
            sizes["heads_count"] = self.rounds["square"].next_fitting(lambda _: True) or 2
        sizes["head_dim"] = sizes["heads_count"]
        if dealt:
            self._deal(sizes, features, LIMIT, ("keys",))
            sizes["queries"] = sizes["keys"]
        sizes["keys"] = sizes["queries"]

    def _deal_short(self, sizes: Sizes, features: Features, least: str) -> None:
        """Deal the sizes that are free, without the one that is to be 1."""
        lengths = ["queries", "keys"]
        if features["inputs"] == "self":
            lengths.remove(self.rng.choice(lengths))
        axes = {"head_dim", "heads_count", *lengths} - {least}
        self._deal(sizes, features, LIMIT, sorted(axes))
        if least != "batch":  # the last one, lest a large one leave no time for the others
            self._deal(sizes, features, LIMIT, ("batch",))
        if features["inputs"] == "self":
            sizes["queries"] = sizes[lengths[0]]

    def _widen(self, sizes: Sizes, features: Features) -> None:
        """Give one case in `LAYER_EVERY`, a plain layer, the heads and width of a common model."""
        plain = (features["form"], features["regime"]) == ("mha", "normal")
        if not plain or not self._free("heads_count", features):
            return
        exact = features["dtype"] == "float64"
        shows = exact or (features["dtype"], features["out_proj"]) == ("float32", "identity")
        expected = LAYER_EVERY // 4 + LAYER_EVERY * self.layers
        if self.drawn >= expected + WAIT * (not shows):
            widest = WIDEST_FLOAT64 if exact else math.inf
            number = self.rounds["layer"].next_fitting(lambda i: math.prod(LAYERS[i]) <= widest)
            heads, head_dim = LAYERS[number or 0]
            self.layers += 1
            sizes |= self._plain(features) | {"heads_count": heads, "head_dim": head_dim}

    def _coincide(self, sizes: Sizes, features: Features) -> None:
        """Make two sizes equal, or a length equal to N H or to E."""
        number = self.rounds["coincidence"].next_fitting(lambda _: True) or 0
        if features["attn"].endswith("2d") and self.rng.random() < TWO_READINGS:
            number = EQUAL_SIZES.index(("batch", "queries"))
        if number < len(EQUAL_SIZES):
            kept, changed = EQUAL_SIZES[number]
            if not self._free(changed, features):
                kept, changed = changed, kept
            if self._free(changed, features):
                sizes[changed] = sizes[kept]
        else:
            length, width = FOLDED[number % 2], ("batch", "head_dim")[number // 2 % 2]
            sizes[length] = sizes[width] * sizes["heads_count"]
        if sizes["heads_count"] == sizes["head_dim"]:
            sizes["head_dim"] += 1

    def _least(self, features: Features) -> str:
        """Return the size that is to be 1, or the length that is to be 0."""
        names = ("batch", "queries", "keys", "head_dim")
        first = int(features["layout"] == "unbatched")
        allowed = range(first, 3 if features["size"] == "empty" else 4)
        return names[self.rounds["least"].next_fitting(allowed.__contains__) or 0]

    def _derived(self, sizes: Sizes, features: Features) -> Sizes:
        """Return the sizes that follow from the others."""
        rng, found = self.rng, {}
        width = sizes["heads_count"] * sizes["head_dim"]
        if features["kv_heads"] == "fewer":
            groups = [kv for heads, kv in GROUPED if heads == sizes["heads_count"]]
            found["kv_heads_count"] = rng.choice(groups)
        if features["v_dim"] == "other":
            others = [sizes["head_dim"] + more for more in (1, 2, 3)] + [8, 16]
            found["v_head_dim"] = rng.choice([d for d in others if d != sizes["head_dim"]])
        if features["projection"] == "separate":
            widths = KV_WIDTHS[self.rounds["kv widths"].next_fitting(lambda _: True) or 0]
            kdim, vdim = (max(width + more, 1) for more in widths)
            found |= {"kdim": kdim, "vdim": vdim + (kdim == vdim == width)}
        return found


def _rounds(rng: random.Random) -> dict[str, Round]:
    """Return a round over the values of each size."""
    return {
        "batch": Round(BATCHES, rng),
        "queries": Round(SHORT, rng),
        "keys": Round(SHORT, rng),
        "heads_count": Round(HEADS, rng),
        "head_dim": Round(HEAD_DIMS, rng),
        "long queries": Round(LONG, rng),
        "long keys": Round(LONG, rng),
        "square": Round(range(2, 17), rng),
        "coincidence": Round(range(len(EQUAL_SIZES) + 2 * len(FOLDED)), rng),
        "least": Round(range(4), rng),
        "layer": Round(range(len(LAYERS)), rng),
        "kv widths": Round(range(len(KV_WIDTHS)), rng),
    }


def _one_length(sizes: Sizes, kind: str) -> int:
    """Return the length of self-attention: the long one, or the one that is 0 or 1."""
    lengths = (sizes["queries"], sizes["keys"])
    if min(lengths) < 2:
        return min(lengths)
    return max(lengths) if kind == "medium" else sizes["queries"]


def judging_microseconds(sizes: Sizes, features: Features) -> float:
    """Return about how many microseconds oracle, bound and judge take, beyond those of any case."""
    queries, keys = sizes["queries"], sizes["keys"]
    if features["inputs"] == "self":
        queries = keys = max(queries, keys)
    width = sizes["heads_count"] * sizes["head_dim"]
    scores = sizes["batch"] * sizes["heads_count"] * queries * keys
    elements = sizes["batch"] * (queries + 2 * keys) * width
    return PER_SCORE * scores + PER_WEIGHT * width**2 + PER_ELEMENT * elements
