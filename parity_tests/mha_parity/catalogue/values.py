"""Bugs that show at certain values alone: zeros and their signs, ties, subnormal numbers, maxima.

Each computes the wrong answer on every case; on most cases that is the right one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.conditional_bugs import Planted, is_not_empty
from mha_parity.catalogue.plain_attention import Attention

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array


class ZeroScoreHidden(Attention):
    """Hide keys whose score is exactly 0, as ``masked_fill(scores == 0, -inf)`` does."""

    def mask_scores(self, scores: Array) -> Array:
        """Return the masked scores, -inf where the score was 0."""
        masked = super().mask_scores(scores)
        masked[scores == 0] = -np.inf
        return masked


class NegativeZeroRow(Attention):
    """Take a value of -0.0 for a small negative number."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return P v with -0.0 replaced."""
        return super().apply_weights(weights, np.where((v == 0) & np.signbit(v), -0.125, v))


class FirstOfTies(Attention):
    """Leave out the keys that tie with an earlier maximum."""

    def softmax(self, scores: Array) -> Array:
        """Return the softmax with a single maximum in each row."""
        top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        ties = (scores == top) & (np.cumsum(scores == top, axis=-1) > 1)
        return super().softmax(np.where(ties, -np.inf, scores))


class RowsRescaled(Attention):
    """Divide each query by its largest magnitude and multiply the scores by it."""

    def scores(self, q: Array, k: Array) -> Array:
        """Return the scores; 1 / magnitude overflows for a subnormal row."""
        largest = np.abs(q).max(axis=-1, keepdims=True, initial=0)
        inverse = self.precise(1 / np.where(largest == 0, 1, largest))
        return np.asarray(super().scores(q * inverse, k) * largest)


class WeightsNormalised(Attention):
    """Divide each row of a projection by its norm and multiply the result by it."""

    def linear(self, x: Array, name: str) -> Array:
        """Return x W^T + b by unit rows of W; the norm of a subnormal row underflows to 0."""
        weight, bias = self.parameter(f"w_{name}"), self.parameter(f"b_{name}")
        if weight is None:
            return super().linear(x, name)
        norm = np.sqrt((weight * weight).sum(axis=1))
        projected: Array = (x @ (weight / norm[:, None]).T) * norm
        return projected if bias is None else projected + bias


class OneKeyIgnored(Attention):
    """Return 0 where there is one key, as a softmax over a squeezed axis does."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return P v; 0 for one key."""
        return super().apply_weights(weights * (weights.shape[-1] > 1), v)


class EqualRowsStandardised(Attention):
    """Divide by the standard deviation of the scores: 0 / 0 where all keys are equal."""

    def softmax(self, scores: Array) -> Array:
        """Return the softmax of scores that were standardised and restored."""
        finite = np.isfinite(scores)
        spread = np.where(finite, scores, 0).std(axis=-1, keepdims=True)
        mean = np.where(finite, scores, 0).mean(axis=-1, keepdims=True)
        restored = (scores - mean) / spread * spread + mean
        return super().softmax(np.where(finite, restored, scores))


class MaximumNotRaised(Attention):
    """Do not rescale earlier tiles where a later one holds a larger maximum."""

    tile = 4
    where = "any"

    def softmax(self, scores: Array) -> Array:
        """Return an online softmax that forgets to rescale in tile ``where``."""
        tops = [
            scores[..., i : i + self.tile].max(axis=-1, keepdims=True, initial=-np.inf)
            for i in range(0, scores.shape[-1], self.tile)
        ]
        running = np.maximum.accumulate(tops) if tops else np.zeros((0, *scores.shape[:-1], 1))
        weights = super().softmax(scores)
        for number in range(1, len(tops)):
            rises = running[number] > running[number - 1]
            if not self._forgets(number, len(tops)):
                continue
            factor = np.where(
                rises, np.exp(np.minimum(running[number] - running[number - 1], 3)), 1
            )
            weights[..., : number * self.tile] *= factor
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))

    def _forgets(self, number: int, count: int) -> bool:
        return {"any": True, "second": number == 1, "last": number == count - 1}[self.where]


class FirstTileOnly(Attention):
    """Start from the second tile where the first one holds the maximum."""

    tile = 4

    def softmax(self, scores: Array) -> Array:
        """Return the softmax without the first tile where it is the largest and not alone."""
        first = scores[..., : self.tile].max(axis=-1, keepdims=True, initial=-np.inf)
        rest = scores[..., self.tile :].max(axis=-1, keepdims=True, initial=-np.inf)
        index = np.arange(scores.shape[-1]) < self.tile
        dropped = index & (first > rest + 8) & np.isfinite(rest)
        return super().softmax(np.where(dropped, -np.inf, scores))


class LowMaskHides(Attention):
    """Hide what a mask lowers by 100 and more, as ``masked_fill(mask < -100, -inf)`` does."""

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        """Return the masked scores, -inf where the mask is below -100."""
        return super().apply_mask(
            scores, np.where(mask < -100, self.work_dtype.type(-np.inf), mask)
        )


class LowMaskDropped(Attention):
    """Add a mask only where it is -inf or above -10."""

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        """Return the masked scores without finite numbers below -10."""
        dropped = (mask < -10) & np.isfinite(mask)
        return super().apply_mask(scores, np.where(dropped, self.work_dtype.type(0), mask))


class LeastMaskOverflows(Attention):
    """Multiply a mask by log2(e), for powers of two: the most negative numbers become -inf."""

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        """Return the masked scores, -inf where the product leaves the range of the dtype."""
        least = np.finfo(self.work_dtype).min * np.log(2)
        overflows = mask < least
        return super().apply_mask(scores, np.where(overflows, self.work_dtype.type(-np.inf), mask))


class HiddenFirstTile(Attention):
    """Start an online softmax from a tile of hidden keys: exp(-inf - -inf) is NaN."""

    tile = 16

    def softmax(self, scores: Array) -> Array:
        """Return the softmax, NaN where the first tile is hidden whole and another is not."""
        hidden = np.isneginf(scores[..., : self.tile].max(axis=-1, keepdims=True, initial=-np.inf))
        weights = super().softmax(scores)
        return np.asarray(np.where(hidden & (scores.shape[-1] > self.tile), np.nan, weights))


class TileSkippedByFirstRow(Attention):
    """Skip a tile of keys where the first query sees none of it."""

    tile = 16

    def softmax(self, scores: Array) -> Array:
        """Return the softmax without the tiles that are hidden from the first query."""
        for start in range(0, scores.shape[-1], self.tile):
            tile = scores[..., start : start + self.tile]
            skipped = np.isneginf(tile[..., :1, :]).all(axis=-1, keepdims=True)
            tile[...] = np.where(skipped, -np.inf, tile)
        return super().softmax(scores)


class LoneKeyDropped(Attention):
    """Return 0 where a row sees one key of several."""

    def softmax(self, scores: Array) -> Array:
        """Return the weights, 0 in rows with a single number."""
        lone = np.isfinite(scores).sum(axis=-1, keepdims=True) == 1
        return np.asarray(super().softmax(scores) * ~(lone & (scores.shape[-1] > 1)))


KINDS: tuple[tuple[str, type[Attention]], ...] = (
    ("a score is exactly 0", ZeroScoreHidden),
    ("a value is -0.0", NegativeZeroRow),
    ("two keys tie for the maximum", FirstOfTies),
    ("a query row is subnormal", RowsRescaled),
    ("a weight row is subnormal", WeightsNormalised),
    ("a row is hidden by a finite number below -100", LowMaskHides),
    ("the least finite number hides all keys of a row", LeastMaskOverflows),
    ("a key is hidden by a finite number below -10", LowMaskDropped),
    ("there is one key", OneKeyIgnored),
    ("a row sees one key of several", LoneKeyDropped),
    ("all key rows are equal", EqualRowsStandardised),
    ("the maximum lies 8 above in the first tile", FirstTileOnly),
    *(
        (f"the first tile of {tile} is hidden", type("Hidden", (HiddenFirstTile,), {"tile": tile}))
        for tile in (4, 16, 32, 64)
    ),
    *(
        (
            f"a tile of {tile} is hidden from the first query alone",
            type("Skipped", (TileSkippedByFirstRow,), {"tile": tile}),
        )
        for tile in (4, 16, 32, 64, 128)
    ),
    *(
        (
            f"the maximum grows in {where} tile of {tile}",
            type("MaximumNotRaised", (MaximumNotRaised,), {"tile": tile, "where": which}),
        )
        for tile in (4, 16, 64, 128)
        for where, which in (("a later", "any"), ("the second", "second"), ("the last", "last"))
    ),
)


def planted_values() -> tuple[Planted, ...]:
    """Return the planted bugs of this family."""
    return tuple(
        Planted(condition=condition, family="value", holds=is_not_empty, kind=kind)
        for condition, kind in KINDS
    )
