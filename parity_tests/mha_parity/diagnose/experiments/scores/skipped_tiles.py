"""Tiles of keys that a kernel skips in some rows, by how far their scores lie below others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.designs.shortest_rules import TILES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.designs.weights_from_output import SampleWeights

MIN_TILES = 4  # skipped, and kept with lower scores than others, that a threshold rests on
LOST = 100  # times what a weight is read to: a weight that can be missed
EVERY_TILE = "weigh every tile of keys: exp of a difference that is far below 0 is small, not 0"


def skipped_tiles(readings: Sequence[SampleWeights]) -> Effect | None:
    """Return which tiles of keys get no weight, and below which score; None where none do."""
    if found := skipped_below(readings):
        return found
    depths = (_depth_of_all(each) for each in reversed(readings) if any(_widths(each)))
    text = next(depths, "")
    return Effect(text, EVERY_TILE) if text else None


def skipped_below(readings: Sequence[SampleWeights]) -> Effect | None:
    """Return which tiles of keys get no weight, where a threshold of their scores is the rule."""
    for reading in reversed(readings):
        for width, skipped, kept in _widths(reading):
            if threshold := _threshold(reading, width, skipped, kept):
                text = f"tiles of {width} keys are skipped where their largest score lies more than"
                return Effect(f"{text} {threshold}", EVERY_TILE)
    return None


def _depth_of_all(reading: SampleWeights) -> str:
    """Return how far below others the scores lie of keys that are skipped; "" where above some."""
    lost = _lost(reading)
    rows = lost.any(axis=-1)
    keys = np.arange(lost.shape[-1])
    first = np.where(lost, keys, len(keys)).min(axis=-1, keepdims=True)
    before = np.where(reading.visible & (keys < first), reading.scores, -np.inf).max(axis=-1)
    depth = float((before - np.where(lost, reading.scores, -np.inf).max(axis=-1))[rows].min())
    which = f"the first at key {first.min()} of {len(keys)}"
    if depth <= 0:
        return ""  # not by their scores: which rows see which keys is measured elsewhere
    return (
        f"tiles of keys ({which}) get no weight in some rows: all their scores lie {depth:.3g} or "
        "more below the largest before them"
    )


def _lost(reading: SampleWeights) -> Array:
    """Return which keys have no weight where one could be read, (H, L, S)."""
    return reading.visible & (reading.expected > LOST * reading.noise) & ~reading.seen


def _widths(reading: SampleWeights) -> Iterator[tuple[int, Array, Array]]:
    """Yield widths, the widest first, of tiles that are lost as a whole or not at all.

    With each, which tiles are lost and which have a weight, (H, L, T).
    """
    lost = _lost(reading)
    rows = lost.reshape(-1, lost.shape[-1])
    if not lost.any() or (reading.seen & ~reading.visible).any() or (rows == rows[0]).all():
        return
    for width in sorted(TILES, reverse=True):
        if width < lost.shape[-1]:
            skipped, kept = (_by_tile(each, width).any(axis=-1) for each in (lost, reading.seen))
            if not (skipped & kept).any() and skipped.sum() >= MIN_TILES:
                yield width, np.asarray(skipped), np.asarray(kept)


def _by_tile(x: Array, width: int, fill: float = 0) -> Array:
    """Return (H, L, S) as (H, L, T, width), what is missing of the last tile filled."""
    padded = np.pad(x, ((0, 0), (0, 0), (0, -x.shape[-1] % width)), constant_values=fill)
    return padded.reshape(*x.shape[:2], -1, width)


def _threshold(reading: SampleWeights, width: int, skipped: Array, kept: Array) -> str:
    """Return below what scores tiles are skipped, of single rows or of tiles of them, or ""."""
    if not _differ(skipped, kept, skipped.shape[1]):
        return ""  # that all rows skip the same tiles says little about scores
    scores = np.where(reading.visible, reading.scores, -np.inf)
    top = _by_tile(scores, width, -np.inf).max(axis=-1)
    alike = [rows for rows in TILES if not _differ(skipped, kept, rows)]
    for said, depth in _depths(top):
        found = [
            each for rows in alike or [1] if (each := depth_limits(depth, rows, skipped, kept))
        ]
        if found:
            high, low = min(found, key=lambda each: each[1] - each[0])
            many = " in all rows of a tile of rows" if alike else ""
            limits = dict.fromkeys((f"{high:.3g}", f"{low:.3g}"))
            return f"{' … '.join(limits)} below {said}{many}"
    return ""


def _differ(skipped: Array, kept: Array, rows: int) -> bool:
    """Return whether of one tile of rows some skip a tile of keys and others do not."""
    return bool((~_of_rows(~skipped, rows) & ~_of_rows(~kept, rows)).any())


def depth_limits(
    depth: Array, rows: int, skipped: Array, kept: Array
) -> tuple[float, float] | None:
    """Return the depths between which the threshold lies, the least of as many rows; or None."""
    least = _of_rows(depth, rows)
    high, low = float(least[kept].max()), float(least[skipped].min())
    return (high, low) if high < low and (least[kept] > 0).sum() >= MIN_TILES else None


def _depths(top: Array) -> Iterator[tuple[str, Array]]:
    """Yield what the largest scores of tiles, (H, L, T), may be compared with, and how far below.

    Before the first tile there is nothing to compare it with.
    """
    before = np.maximum.accumulate(top, axis=-1)
    before = np.concatenate([np.full_like(top[..., :1], -np.inf), before[..., :-1]], axis=-1)
    yield "that of the tiles before", before - top
    yield "that of the row", top.max(axis=-1, keepdims=True) - top
    yield "0", -top


def _of_rows(x: Array, rows: int) -> Array:
    """Return the least of each tile of rows, for every row."""
    least = np.minimum.reduceat(x, np.arange(0, x.shape[1], rows), axis=1)
    return np.repeat(least, rows, axis=1)[:, : x.shape[1]]
