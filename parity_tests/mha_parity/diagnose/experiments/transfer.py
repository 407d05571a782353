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

from mha_parity.diagnose.experiments.reading import Reading
from mha_parity.diagnose.experiments.rules import TILES, Places, place_rule, spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mha_parity.core.arrays import Array

ATOL = {"float64": 1e-6, "float32": 1e-2, "float16": 0.2, "bfloat16": 1.0}
LEAST = 1e-6  # weights below are read with too few digits for a logarithm
ROWS = 8
LOG2E = 1 / math.log(2)


@dataclass(frozen=True, eq=False)
class Curve:
    """Log-ratios of weights (y) over differences of true scores (x), from the row's largest weight.

    Arrays (H, L, S); ``usable`` marks the weights that are large enough for a logarithm.
    """

    reading: Reading
    y: Array
    x: Array
    usable: Array
    reference: Array

    @property
    def atol(self) -> float:
        """How far a log-ratio that is read may be off."""
        return ATOL[self.reading.problem.case.dtype]

    def misfit(self, predicted: Array) -> float:
        """Return the largest distance of the log-ratios from what is predicted."""
        return float(np.abs(np.where(self.usable, self.y - predicted, 0)).max(initial=0))

    def relative(self, absolute: Array) -> Array:
        """Return values (H, L, S) less that at each row's reference key."""
        return np.asarray(absolute - np.take_along_axis(absolute, self.reference, axis=-1))


def curve(reading: Reading) -> Curve | None:
    """Return the log-ratios of a reading, or None where too few weights are positive."""
    weights = np.where(reading.visible, reading.weights, 0)
    usable = weights > max(LEAST, 10 * reading.noise)
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
    reading = found.reading
    scale, factors = reading.problem.scale, []
    for head in range(len(found.y)):
        products = scale * reading.query[head][:, None, :] * reading.key[head][None, :, :]
        rows = found.reference[head][..., None]
        x = products - np.take_along_axis(products, rows, axis=1)
        usable = found.usable[head]
        if usable.sum() < 3 * x.shape[-1]:
            return None
        solved = np.linalg.lstsq(x[usable], found.y[head][usable], rcond=None)[0]
        if np.abs(x[usable] @ solved - found.y[head][usable]).max() > found.atol:
            return None
        factors.append(solved)
    return np.array(factors)


@dataclass(frozen=True)
class Bend:
    """A function of the score in place of the score, with a constant to fit."""

    text: str
    function: Callable[[Array, float], Array]
    constants: tuple[float, ...]
    remedy: str


def _log_abs(z: Array) -> Array:
    return np.log(np.maximum(np.abs(z), 1e-300))


GRID = tuple(np.geomspace(0.3, 120, 60).tolist())
BENDS = (
    Bend("scores are clipped to ±{c:.4g} before the softmax", lambda z, c: np.clip(z, -c, c), GRID,
         "remove the clip: the softmax subtracts the row's maximum and needs none"),
    Bend("scores are clipped at {c:.4g} from above", np.minimum, GRID, "remove the clip"),
    Bend("scores are clipped at -{c:.4g} from below", lambda z, c: np.maximum(z, -c), GRID,
         "remove the clip"),
    Bend("scores are capped by {c:.4g} tanh(score / {c:.4g})", lambda z, c: c * np.tanh(z / c),
         GRID, "remove the soft cap: multi-head attention has none"),
    Bend("weights are relu(score), not exp(score)", lambda z, _: _log_abs(np.maximum(z, 0)), (1.0,),
         "use exp"),
    Bend("weights are score^2, not exp(score)", lambda z, _: 2 * _log_abs(z), (1.0,), "use exp"),
    Bend("weights are sigmoid(score), not exp(score)",
         lambda z, _: -np.log1p(np.exp(-z)), (1.0,), "use exp"),
    Bend("weights are 1 + score, not exp(score)", lambda z, _: _log_abs(1 + z), (1.0,), "use exp"),
    Bend("weights are elu(score) + 1, not exp(score)",
         lambda z, _: np.where(z > 0, np.log1p(np.maximum(z, 0)), z), (1.0,), "use exp"),
    Bend("weights are (1 + score/{c:.0f})^{c:.0f}, not exp(score)",
         lambda z, c: c * _log_abs(1 + z / c), (2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
         "use exp"),
    Bend("the exponential is a Taylor polynomial of degree {c:.0f}",
         lambda z, c: _log_abs(_taylor(z, int(c))), tuple(range(2, 13)), "use exp"),
    Bend("scores are taken by their magnitude", lambda z, _: np.abs(z), (1.0,), "keep the sign"),
    Bend("negative scores are set to 0", lambda z, _: np.maximum(z, 0), (1.0,), "remove the relu"),
    Bend("scores below 0 are multiplied by {c:.4g}", lambda z, c: np.where(z > 0, z, c * z),
         tuple(np.geomspace(0.005, 0.9, 40).tolist()), "remove the leaky relu"),
    Bend("scores are rounded to multiples of {c:.4g}", lambda z, c: np.round(z / c) * c,
         tuple(2.0**-k for k in range(9)), "keep the scores in floating point"),
)  # fmt: skip


def _taylor(z: Array, degree: int) -> Array:
    total = np.ones_like(z)
    term = np.ones_like(z)
    for n in range(1, degree + 1):
        term = term * z / n
        total = total + term
    return total


def bend(found: Curve) -> tuple[Bend, float] | None:
    """Return the function of the score that gives the weights, with its constant, if one does.

    The function is applied to the score, or to the score less the row's largest.
    """
    found = _fewer_rows(found)
    scores = np.where(found.reading.visible, found.reading.scores, 0)
    top = np.where(found.reading.visible, found.reading.scores, -np.inf).max(axis=-1, keepdims=True)
    with np.errstate(all="ignore"):
        for each in BENDS:
            for z in (scores, scores - top):
                constant, rest = _fitted(found, each, z)
                if rest <= 10 * found.atol:
                    return each, constant
    return None


def _fewer_rows(found: Curve) -> Curve:
    """Return the curve at the ``ROWS`` rows that are furthest from a straight line.

    A constant to fit needs no more rows, but those in which it shows.
    """
    reading = found.reading
    rest = np.where(found.usable, np.abs(found.y - found.x), 0).max(axis=(0, 2))
    rows = np.sort(np.argsort(-rest)[:ROWS])
    fewer = Reading(
        reading.problem, reading.weights[:, rows], reading.expected[:, rows],
        reading.scores[:, rows], reading.query[:, rows], reading.key,
    )  # fmt: skip
    return Curve(
        fewer, found.y[:, rows], found.x[:, rows], found.usable[:, rows], found.reference[:, rows]
    )


def _fitted(found: Curve, each: Bend, z: Array) -> tuple[float, float]:
    def rest(constant: float) -> float:
        actual = found.misfit(found.relative(each.function(z, constant)))
        return actual if math.isfinite(actual) else math.inf

    rests = [rest(c) for c in each.constants]
    best = int(np.argmin(rests))
    if len(each.constants) != len(GRID) or each.constants != GRID:
        return each.constants[best], rests[best]
    low, high = GRID[max(best - 1, 0)], GRID[min(best + 1, len(GRID) - 1)]
    return _refined(rest, low, high)


def _refined(rest: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Return where ``rest`` is least between two constants, by golden sections."""
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        a, b = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, b) if rest(a) < rest(b) else (a, high)
    middle = (low + high) / 2
    for digits in (2, 3, 4):
        short = float(f"{middle:.{digits}g}")
        if rest(short) <= max(rest(middle), 1e-9):
            return short, rest(short)
    return middle, rest(middle)


def table(found: Curve) -> str:
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
    """Return the width of tiles of keys within which log-ratios are due, and each tile's offset.

    Offsets (H, L, T) are NaN where no weight of the tile can be read.
    """
    rest = np.where(found.usable, found.y - found.x, np.nan)
    keys = rest.shape[-1]
    for width in reversed([w for w in TILES if w < keys]):
        count = -(-keys // width)
        padded = np.full((*rest.shape[:2], count * width), np.nan)
        padded[..., :keys] = rest
        by_tile = padded.reshape(*rest.shape[:2], count, width)
        some = np.isfinite(by_tile)
        high = np.where(some, by_tile, -np.inf).max(axis=-1)
        low = np.where(some, by_tile, np.inf).min(axis=-1)
        spread = np.where(some.any(axis=-1), high - low, 0)
        if spread.max() <= 10 * found.atol and some.sum(axis=-1).max() > 1:
            return width, np.where(some.any(axis=-1), high, np.nan)
    return None


def tile_story(found: Curve) -> str:
    """Return by what the weights of a tile of keys are off against those of the others."""
    cut = tiles(found)
    if cut is None:
        return ""
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
            return start + _rescaling(name, factor)
    return (
        f"{start}within a tile the weights are due, between tiles their ratio is off by up to "
        f"{math.exp(min(float(np.nanmax(np.abs(offsets))), 50)):.3g} times"
    )


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


def denominator(found: Curve) -> str:
    """Return what is added to the denominator, where log-ratios are due and rows sum to less."""
    reading = found.reading
    sums = np.where(reading.visible, reading.weights, 0).sum(axis=-1)
    if not (np.abs(sums - 1) > 100 * reading.noise).any() or (sums <= 0).any():
        return ""
    scores = np.where(reading.visible, reading.scores, -np.inf)
    top = scores.max(axis=-1)
    shifted = np.exp(scores - top[..., None]).sum(axis=-1)
    low, high = float(sums.min()), float(sums.max())
    for text, extra in _added(1 / sums - 1, shifted, top):
        if np.ptp(extra) <= 1e-4 * np.abs(extra).max() + 1e-9:
            return text.format(c=float(extra.mean()))
    if np.ptp(sums) <= 1e-6:
        return f"every row of weights sums to {low:.6g}, due is 1"
    return f"rows of weights sum to {low:.4g} … {high:.4g}, due is 1"


def _added(excess: Array, shifted: Array, top: Array) -> Iterator[tuple[str, Array]]:
    """Yield what may be added to the denominator, with its size in every row."""
    padded = "the denominator has {c:.4g} terms exp(0) too many: padded keys that are not masked"
    yield padded, excess * shifted * np.exp(top)
    constant = "{c:.4g} is added to the denominator, after the row maximum is subtracted"
    yield constant, excess * shifted


def describe_channels(found: Sequence[Array]) -> str:
    """Return which channels of the dot product have which factor; ``found`` are (H, D) each."""
    left_out = [_left_out(factors) for factors in found]
    if all(each and each.off for each in left_out):
        seen = [each for each in left_out if each]
        rule = place_rule("channel", seen) if len(seen) > 1 else None
        here = f"{spans(seen[-1].off)} of {seen[-1].count}"
        return f"the dot product leaves out {f'{rule}: ' if rule else 'channels '}{here}"
    listed = ", ".join(f"{f:.4g}" for f in found[0][0][:8])
    return f"the channels of the dot product have the factors {listed}"


def _left_out(factors: Array) -> Places | None:
    """Return which channels have no part in any head, where all others have their own."""
    out = np.abs(factors) < 1e-3
    if not (out == out[0]).all() or np.abs(factors[~out] - 1).max(initial=0) >= 1e-3:
        return None
    return Places(factors.shape[1], frozenset(np.flatnonzero(out[0]).tolist()))
