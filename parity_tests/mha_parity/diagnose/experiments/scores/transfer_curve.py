"""The weight as a function of the true score, from log-ratios within each row.

log(w_ij / w_ir) does not depend on the denominator. Straight in z_ij - z_ir: a scale. Bent, but a
function of z alone: clipped, capped, another base. A factor for each channel: a dot product that
leaves some out. A step at a border between tiles of keys: partial results are combined wrongly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.rng import numpy_dtype
from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.designs.shortest_rules import (
    TILES,
    OffIndices,
    index_rule,
    index_runs,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.designs.weights_from_output import SampleWeights

ATOL = {"float64": 1e-6, "float32": 1e-3, "float16": 0.2, "bfloat16": 1.0}
MIN_WEIGHT = 1e-6  # weights below are read with too few digits for a logarithm
REFUTED = 100  # times what a log-ratio may be off: few rows that miss by it speak for all
LOG2E = 1 / math.log(2)
GRIDS = {"bfloat16": (8, -126), "float16": (11, -14)}  # digits, and the least exponent of frexp
MIN_ON_GRID = 20  # exponentials, of which a share of 2^(1 + bits) * atol each is there by chance


@dataclass(frozen=True, eq=False)
class Curve:
    """Log-ratios of weights (y) over differences of true scores (x), from the row's largest weight.

    Arrays (H, L, S); ``usable`` marks the weights that are large enough for a logarithm.
    """

    reading: SampleWeights
    y: Array
    x: Array
    usable: Array
    reference: Array

    @property
    def atol(self) -> float:
        """How far a log-ratio that is read may be off."""
        return ATOL[self.reading.problem.case.dtype]

    @property
    def spread(self) -> Array:
        """How many times ``atol`` a log-ratio may be off, since noise / w of a weight w is lost."""
        weights = np.where(self.usable, self.reading.weights, 1)
        return np.asarray(np.maximum(1, self.reading.noise / weights / self.atol))

    def misfit(self, predicted: Array) -> float:
        """Return the largest distance of the log-ratios from what is predicted, over ``spread``."""
        off = np.where(self.usable, self.y - predicted, 0) / self.spread
        return float(np.abs(off).max(initial=0))

    def relative(self, absolute: Array) -> Array:
        """Return values (H, L, S) less that at each row's reference key."""
        return np.asarray(absolute - np.take_along_axis(absolute, self.reference, axis=-1))


def curve(reading: SampleWeights) -> Curve | None:
    """Return the log-ratios of a reading, or None where too few weights are positive."""
    weights = np.where(reading.visible, reading.weights, 0)
    usable = weights > max(MIN_WEIGHT, 10 * reading.noise)
    if not np.isfinite(weights).all() or usable.sum(axis=-1).max(initial=0) < 2:
        return None
    reference = weights.argmax(axis=-1, keepdims=True)
    logs = np.log(np.where(usable, weights, 1))
    scores = np.where(reading.visible, reading.scores, 0)
    y = logs - np.take_along_axis(logs, reference, axis=-1)
    x = scores - np.take_along_axis(scores, reference, axis=-1)
    return Curve(reading, y, x, usable, reference)


def slope(found: Curve) -> tuple[Array, float]:
    """Return the factor on the true scores of each head, and the misfit of a straight line."""
    x, y = np.where(found.usable, found.x, 0), np.where(found.usable, found.y, 0)
    slopes = (x * y).sum(axis=(1, 2)) / np.maximum((x * x).sum(axis=(1, 2)), 1e-300)
    return slopes, found.misfit(slopes[:, None, None] * found.x)


def channel_factors(found: Curve) -> Array | None:
    """Return the factor on each channel of the dot product, (H, D), where such factors fit."""
    factors = []
    for head, usable in enumerate(found.usable):
        needed = 3 * found.reading.query.shape[-1]
        enough = np.cumsum(usable.sum(axis=1)) >= needed
        if not enough.any():
            return None
        # A few rows refute most curves, by far more than all of them fit: these cost less.
        few = slice(int(enough.argmax()) + 1)
        if _channel_fit(found, head, few)[1] > REFUTED * found.atol:
            return None
        solved, rest = _channel_fit(found, head, slice(None))
        if rest > found.atol:
            return None
        factors.append(solved)
    return np.array(factors)


def _channel_fit(found: Curve, head: int, rows: slice) -> tuple[Array, float]:
    """Return the factors on the channels that fit some rows of a head best, and their misfit."""
    reading, usable, y = found.reading, found.usable[head, rows], found.y[head, rows]
    query, key = reading.query[head, rows], reading.key[head]
    products = reading.problem.scale * query[:, None, :] * key[None, :, :]
    x = products - np.take_along_axis(products, found.reference[head, rows][..., None], axis=1)
    solved = np.linalg.lstsq(x[usable], y[usable], rcond=None)[0]
    return solved, float(np.abs(x[usable] @ solved - y[usable]).max())


def rounded_exponentials(found: Curve) -> str:
    """Return the dtype on whose grid all exponentials lie, next to the right ones, or "".

    That of a row's largest score is 1, on every grid: so the ratios to it lie on the grid too.
    """
    powers = np.exp(found.y[found.usable])
    fractions, exponents = np.frexp(powers)
    for name, (bits, least) in GRIDS.items():
        at = fractions * 2.0**bits
        near = np.abs(at - np.round(at)).max(initial=0) < 2.0**bits * found.atol
        right = found.misfit(found.x) <= 2.0 ** (1 - bits)
        if near and right and len(powers) >= MIN_ON_GRID and exponents.min() > least:
            return name
    return ""


def step_function_sentence(found: Curve) -> str:
    """Return that log-weights are a step function of the score, where they repeat exactly."""
    reading = found.reading
    top = np.where(reading.visible, reading.scores, -np.inf).max(axis=-1, keepdims=True)
    z = np.where(reading.visible, reading.scores - top, 0)[found.usable]
    y = found.y[found.usable]
    order = np.argsort(z)
    steps = np.diff(y[order])
    if len(y) < 40 or (np.diff(z[order]) > 0).mean() < 0.9:
        return ""
    flat = np.abs(steps) < found.atol
    rises = steps[~flat]
    if flat.mean() < 0.1 or not rises.size or (rises < 0).any():
        return ""
    least = float(rises.min())
    whole = np.abs(rises / least - np.round(rises / least)).max() < 1e-3
    size = (
        f"in steps of {least:.4g}, each a multiple of it"
        if whole
        else f"in steps of {least:.3g} at least"
    )
    return f"the exponential is read from a table: log-weights rise with the score {size}"


def tiles(found: Curve) -> tuple[int, Array] | None:
    """Return the width of tiles of keys within which log-ratios are right, and each tile's offset.

    Offsets (H, L, T) are NaN where no weight of the tile can be read.
    """
    rest = np.where(found.usable, found.y - found.x, np.nan)
    keys = rest.shape[-1]
    # Of a fixed number of keys, or a few parts of all keys.
    shares = (-(-keys // parts) for parts in range(2, MOST_PARTS + 1))
    for width in sorted({w for w in (*TILES, *shares) if 1 < w < keys}, reverse=True):
        count = -(-keys // width)
        padded = np.full((*rest.shape[:2], count * width), np.nan)
        padded[..., :keys] = rest
        by_tile = padded.reshape(*rest.shape[:2], count, width)
        some = np.isfinite(by_tile)
        any_of: Array = np.asarray(some.any(axis=-1))
        high = np.where(some, by_tile, -np.inf).max(axis=-1)
        low = np.where(some, by_tile, np.inf).min(axis=-1)
        spread = np.where(any_of, high - low, 0)
        # Only in a row that is wrong do two right weights of one tile speak for the tile.
        offsets = np.where(any_of, high, np.nan)
        wrong: Array = np.asarray(np.nan_to_num(np.abs(offsets)).max(axis=-1) > 10 * found.atol)
        compared = np.maximum(some.sum(axis=-1) - 1, 0)[wrong].sum()
        enough = compared >= max(MIN_COMPARED, any_of[wrong].sum() / 2)
        if spread.max() > 10 * found.atol or not enough:
            continue
        # A single key that is off, in a tile of its own at the end, is no tile.
        others = np.nanmedian(np.where(wrong[..., None], offsets, 0), axis=-1, keepdims=True)
        off = wrong[..., None] & (np.abs(offsets - others) > 10 * found.atol)
        if (off & (some.sum(axis=-1) > 1)).any():
            return width, offsets
    return None


MOST_PARTS = 8  # that keys are split in
MIN_COMPARED = 8  # weights beside the first of their tile, in rows that are wrong
RESCALED = (
    "multiply what was accumulated, and the row sum, by exp(old maximum - new maximum) whenever "
    "the maximum grows"
)
MERGED = (
    "weight each tile's result by exp(its maximum - the row's maximum) times its own sum of exp"
)
KEPT = "keep what tiles are merged by in the dtype of the scores"


def tile_offset(found: Curve) -> Effect | None:
    """Return by what the weights of a tile of keys are off against those of the others."""
    cut = tiles(found)
    if cut is None:
        return None
    width, offsets = cut
    scores = np.where(found.reading.visible, found.reading.scores, -np.inf)
    pads = -scores.shape[-1] % width
    padded = np.pad(scores, ((0, 0), (0, 0), (0, pads)), constant_values=-np.inf)
    own = padded.reshape(*scores.shape[:2], -1, width).max(axis=-1)
    running = np.maximum.accumulate(own, axis=-1)
    after = np.concatenate([running[..., 1:], running[..., -1:]], axis=-1)
    start = f"keys are combined in tiles of {width}; "
    for name, maxima in (("own", own), ("running", running), ("next", after)):
        factor = _proportional(offsets, maxima, found.atol)
        if factor is not None:
            return Effect(start + _rescaling(name, factor), RESCALED)
    pieces = padded.reshape(*scores.shape[:2], -1, width)
    with np.errstate(invalid="ignore", divide="ignore"):
        sums = np.log(np.exp(pieces - own[..., None]).sum(axis=-1))
    factor = _proportional(offsets, sums, found.atol)
    if factor is not None and abs(factor + 1) < 1e-3:
        return Effect(
            f"{start}each tile's result is weighted by exp of its maximum alone, and not by its "
            "sum of exponentials",
            MERGED,
        )
    for dtype in ("float16", "bfloat16"):  # what float32 rounds is less than can be read
        for name, kept in (("the log-sum-exp", own + sums), ("the maximum", own)):
            factor = _proportional(offsets, _rounding_error(kept, dtype), found.atol)
            if factor is not None and abs(factor - 1) < 0.1:
                return Effect(f"{start}{name} of each tile is rounded to {dtype}", KEPT)
    most = math.expm1(min(float(np.nanmax(np.abs(offsets))), 50))
    return Effect(
        f"{start}within a tile the weights are right, between tiles their ratio is off by up to "
        + (f"{100 * most:.2g} %" if most < 0.5 else f"{1 + most:.3g} times"),
        MERGED,
    )


def _rounding_error(array: Array, dtype: str) -> Array:
    """Return what rounding to a dtype adds to the finite numbers of an array."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(array.astype(numpy_dtype(dtype)).astype(array.dtype) - array)


def _rescaling(name: str, factor: float) -> str:
    if abs(factor + 1) < 1e-3:
        return {
            "own": "each tile has its own maximum subtracted, and partial results are added "
            "without the factor exp(tile maximum - overall maximum)",
            "running": "when the running maximum grows, what was accumulated before is not "
            "multiplied by exp(old maximum - new maximum)",
            "next": "the factor exp(old maximum - new maximum) is applied to the wrong tile",
        }[name]
    if abs(factor - (LOG2E - 1)) < 1e-3:
        return (
            "when the running maximum grows, what was accumulated is multiplied by exp of a "
            "difference in base-2 units, not by exp2"
        )
    if abs(factor - (math.log(2) - 1)) < 1e-3:
        return (
            "when the running maximum grows, what was accumulated is multiplied by exp2 of a "
            "difference in natural units, not by exp"
        )
    return f"a tile's weights are off by exp({factor:.4g} times its {name} maximum)"


def _proportional(offsets: Array, maxima: Array, atol: float) -> float | None:
    """Return a with offset = a maximum, but for one constant a row; None where none fits."""
    usable = np.isfinite(offsets) & np.isfinite(maxima)
    if not usable.any():
        return None
    count = np.maximum(usable.sum(axis=-1, keepdims=True), 1)

    def centred(array: Array) -> Array:
        kept = np.where(usable, array, 0)
        return np.where(usable, kept - kept.sum(axis=-1, keepdims=True) / count, 0)

    y, x = centred(offsets), centred(maxima)
    if (x * x).sum() == 0 or np.abs(y).max() <= 10 * atol:
        return None
    factor = float((x * y).sum() / (x * x).sum())
    return factor if np.abs(y - factor * x).max() <= 20 * atol else None


def describe_channels(found: Sequence[Array], right: Sequence[int] = ()) -> str:
    """Return which channels of the dot product have which factor; ``found`` are (H, D) each.

    At the widths ``right`` all of them have their own.
    """
    left_out = [_left_out(factors) for factors in found]
    if all(each and each.off for each in left_out):
        seen = [each for each in left_out if each]
        rule = index_rule("channel", seen, right) if len(seen) > 1 else None
        here = f"{index_runs(seen[-1].off)} of {seen[-1].count}"
        return f"the dot product leaves out {f'{rule}: ' if rule else 'channels '}{here}"
    listed = ", ".join(f"{f:.4g}" for f in found[0][0][:8])
    return f"the channels of the dot product have the factors {listed}"


def _left_out(factors: Array) -> OffIndices | None:
    """Return which channels have no part in any head, where all others have their own."""
    out = np.abs(factors) < 1e-3
    if not (out == out[0]).all() or np.abs(factors[~out] - 1).max(initial=0) >= 1e-3:
        return None
    return OffIndices(factors.shape[1], frozenset(np.flatnonzero(out[0]).tolist()))
