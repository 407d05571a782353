"""Bugs that show at certain sizes alone: multiples, thresholds, single sizes, coincidences, tiles.

Kernels choose their code by size (vector width, tile, alignment, warp), and tests of one shape meet
one of these ways. The conditions are generated; they are not read from the lists that sizes are
drawn from.
"""

from __future__ import annotations

import operator
from itertools import chain, product
from types import MappingProxyType
from typing import TYPE_CHECKING

from mha_parity.catalogue.conditional_bugs import Planted
from mha_parity.catalogue.plain_attention import Attention

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case

    Size = Callable[[Case], int]

SIZES: Mapping[str, Size] = MappingProxyType(
    {
        "N": operator.attrgetter("batch"),
        "L": operator.attrgetter("queries"),
        "S": operator.attrgetter("keys"),
        "H": operator.attrgetter("heads_count"),
        "D": operator.attrgetter("head_dim"),
        "E": operator.attrgetter("embed_dim"),
        "N H": lambda case: case.batch * case.heads_count,
    }
)
MULTIPLES = {
    "D": (2, 3, 4, 8, 16, 32, 64),
    "S": (2, 3, 4, 8, 16, 32, 64, 128),
    "L": (2, 3, 4, 8, 16, 32, 64),
    "H": (2, 3, 4, 8),
    "N": (2, 3, 4),
    "E": (8, 16, 32, 64, 128),
}
ABOVE = {
    "D": (8, 16, 32, 64, 127),
    "S": (1, 2, 8, 16, 32, 64, 128, 256, 512, 1024),
    "L": (1, 2, 8, 16, 32, 64, 128, 256),
    "H": (4, 7, 8, 15),
    "N": (2, 4, 7, 9, 32, 63),
    "E": (256, 511),
}
SINGLE = {
    "D": (1, 2, 3, 4, 5, 8, 16, 24, 32, 40, 64, 96, 128),
    "S": (1, 2, 3, 4, 8, 15, 16, 17, 20, 31, 32, 33, 40, 48, 63, 64),
    "L": (1, 2, 3, 4, 8, 15, 16, 17, 20, 31, 32, 33, 40, 48, 63, 64),
    "H": (1, 2, 6, 8, 12, 16, 32),
    "N": (1, 2, 4, 8, 9, 12, 16, 32, 64),
    "E": (288, 512),
}
RANGES = (("S", 17, 48), ("L", 17, 48), ("D", 17, 31), ("D", 33, 63), ("S", 129, 255))
EQUAL = (
    ("N", "L"), ("N", "S"), ("N", "H"), ("N", "D"), ("L", "H"), ("L", "D"), ("S", "H"), ("S", "D"),
    ("L", "S"), ("H", "D"), ("N H", "L"), ("N H", "S"), ("E", "L"), ("E", "S"),
)  # fmt: skip
TILES = (16, 32, 64, 128, 256)


class TailDropped(Attention):
    """Leave out the keys behind the last whole tile."""

    tile = 64

    def softmax(self, scores: Array) -> Array:
        """Return the softmax over whole tiles, 0 behind them."""
        whole = scores.shape[-1] // self.tile * self.tile
        weights = super().softmax(scores)
        weights[..., whole:] = 0
        return weights


class LastOfTileScaled(Attention):
    """Scale the last row of every whole tile of queries by 9/8."""

    tile = 64

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return P v with every 64th row scaled."""
        heads = super().apply_weights(weights, v)
        heads[:, :, self.tile - 1 :: self.tile] *= 1.125
        return heads


def planted_sizes() -> tuple[Planted, ...]:
    """Return the planted bugs of this family."""
    return tuple(chain(_by_one_size(), _by_two_sizes(), _by_tiles()))


def _where(family: str, condition: str, holds: Callable[[Case], bool]) -> Planted:
    def not_empty(case: Case) -> bool:
        return 0 not in (case.batch, case.queries, case.keys) and holds(case)

    return Planted(condition=condition, family=family, holds=not_empty)


def _by_one_size() -> Iterator[Planted]:
    """Yield bugs at multiples, at odd sizes, above thresholds, at single sizes and in ranges."""
    for name, numbers in MULTIPLES.items():
        for m in numbers:
            yield _where("multiple", f"{name} % {m} == 0", _multiple(SIZES[name], m, 0))
        yield _where("multiple", f"{name} % 2 == 1", _multiple(SIZES[name], 2, 1))
    for name, numbers in ABOVE.items():
        for least in numbers:
            yield _where("threshold", f"{name} > {least}", _within(SIZES[name], least + 1))
    for name, numbers in SINGLE.items():
        for only in numbers:
            yield _where("single size", f"{name} == {only}", _within(SIZES[name], only, only))
    for name, low, high in RANGES:
        yield _where("range", f"{low} <= {name} <= {high}", _within(SIZES[name], low, high))


def _by_two_sizes() -> Iterator[Planted]:
    """Yield bugs where two sizes are equal."""
    for first, second in EQUAL:
        one, other = SIZES[first], SIZES[second]
        yield _where("coincidence", f"{first} == {second}", _equal(one, other))


def _by_tiles() -> Iterator[Planted]:
    """Yield bugs at the tails of tiles, and in their last rows."""
    for name, tail in product(("S", "L"), range(2, 15)):
        at_tail = _both(_within(SIZES[name], 17), _multiple(SIZES[name], 16, tail))
        yield _where("tile", f"{name} > 16 and {name} % 16 == {tail}", at_tail)
    for tile in TILES:
        for name in ("S", "L"):
            longer = _within(SIZES[name], tile + 1)
            for tail in (1, tile - 1):
                text = f"{name} > {tile} and {name} % {tile} == {tail}"
                at_tail = _multiple(SIZES[name], tile, tail)
                yield _where("tile", text, _both(longer, at_tail))
        partial = _both(_within(SIZES["S"], tile + 1), _multiple(SIZES["S"], tile, 0, same=False))
        dropped = type(f"TailDropped{tile}", (TailDropped,), {"tile": tile})
        yield Planted(
            condition=f"keys of a partial tile of {tile}", family="tile", holds=partial,
            kind=dropped,
        )  # fmt: skip
        last = type(f"LastOfTileScaled{tile}", (LastOfTileScaled,), {"tile": tile})
        yield Planted(
            condition=f"last row of a tile of {tile}", family="tile",
            holds=_both(_within(SIZES["L"], tile), _within(SIZES["S"], 1)), kind=last,
        )  # fmt: skip


def _multiple(size: Size, divisor: int, rest: int, *, same: bool = True) -> Callable[[Case], bool]:
    return lambda case: (size(case) % divisor == rest) is same


def _within(size: Size, low: int, high: float = float("inf")) -> Callable[[Case], bool]:
    return lambda case: low <= size(case) <= high


def _equal(first: Size, second: Size) -> Callable[[Case], bool]:
    return lambda case: first(case) == second(case)


def _both(first: Callable[[Case], bool], second: Callable[[Case], bool]) -> Callable[[Case], bool]:
    return lambda case: first(case) and second(case)
