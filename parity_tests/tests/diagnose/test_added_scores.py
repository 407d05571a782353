"""What is added to the scores is measured where it follows the key, or the distance, alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.cases.rng import numpy_dtype
from mha_parity.catalogue import Attention
from mha_parity.diagnose.experiments.designs.weights_from_output import read_case_weights
from mha_parity.diagnose.experiments.scores.added_scores import added
from mha_parity.diagnose.experiments.scores.transfer_curve import curve

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.designs.calls import Caller

TILE = 32


class TailOverlaps(Attention):
    """The last tile is shifted back to fit: keys of the tile before count again."""

    def mask_scores(self, scores: Array) -> Array:
        """Add ln(2) where two tiles have the key."""
        keys = scores.shape[-1]
        again = (np.arange(keys) >= keys - TILE) & (np.arange(keys) < keys // TILE * TILE)
        twice = np.where(again & (keys > TILE), np.log(2), 0)
        return np.asarray(super().mask_scores(scores) + twice)


class Distances(Attention):
    """The squared distance of q and k takes the place of their product."""

    def scores(self, q: Array, k: Array) -> Array:
        """Subtract half of the square of each key."""
        squares = (k**2).sum(axis=-1)[..., None, :] / 2
        return np.asarray(super().scores(q, k) - squares * self.scale())


class LinearBias(Attention):
    """A slope of the distance, one for each head, is added."""

    def mask_scores(self, scores: Array) -> Array:
        """Subtract 2^-(h + 1) |i - j|."""
        rows, keys = np.indices(scores.shape[-2:])
        slopes = 0.5 ** (1 + np.arange(scores.shape[-3]))
        return np.asarray(super().mask_scores(scores) - slopes[:, None, None] * abs(rows - keys))


class KeyBias(Attention):
    """A learnt bias of each position of a key is added."""

    def mask_scores(self, scores: Array) -> Array:
        """Add a number of the key's place."""
        return np.asarray(super().mask_scores(scores) + np.sin(np.arange(scores.shape[-1]) ** 2))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (TailOverlaps, "key 95 of 127 counts 2 times, expected once"),
        (Distances, "the score is -|q - k|^2 / (2 sqrt(D)), expected q k^T / sqrt(D): -0.5 |k|^2"),
        (LinearBias, "-0.5, -0.25 (by head) times |i - j| is added to the score of row i and key"),
        (KeyBias, "a term of the key alone and of its place, not of its values is added"),
    ],
)
def test_what_is_added_is_said(
    kind: type[Attention], text: str, causes: Callable[[type[Attention]], str]
) -> None:
    """A count, a distance of q and k, a slope over i - j, and what follows no formula."""
    assert text in causes(kind)


class Waves(Attention):
    """What is added follows row and key, and neither the key nor the distance alone."""

    def mask_scores(self, scores: Array) -> Array:
        """Add numbers of both."""
        rows, keys = np.indices(scores.shape[-2:])
        return np.asarray(super().mask_scores(scores) + np.sin(rows * keys))


@pytest.mark.parametrize("kind", [Waves, Attention])
def test_nothing_is_said_of_other_scores(
    kind: type[Attention], caller: Callable[..., Caller]
) -> None:
    """Terms of row and key together are no term of the key; nor is what a right one has."""
    asked = caller(kind)
    reading = read_case_weights(
        asked, asked.case(batch=1, queries=6, keys=24, head_dim=13, heads_count=2)
    )
    assert reading is not None
    found = curve(reading)
    assert found is not None
    assert added(found) is None


class CentredValues(Attention):
    """The mean of the values is subtracted, and not added back."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Subtract it."""
        return np.asarray(super().apply_weights(weights, v - v.mean(axis=-2, keepdims=True)))


class Smoothed(Attention):
    """A tenth of the weights is spread over all keys."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Mix."""
        mean = v.mean(axis=-2, keepdims=True)
        return np.asarray(0.9 * super().apply_weights(weights, v) + 0.1 * mean)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (CentredValues, "P - 1/S: the mean of V over the keys is subtracted, expected P"),
        (Smoothed, "the values are multiplied with 0.9 P + 0.1/S, expected P"),
    ],
)
def test_what_is_added_to_the_weights_is_said(
    kind: type[Attention], text: str, causes: Callable[[type[Attention]], str]
) -> None:
    """Weights that are a sum of the right ones and of one number for all keys."""
    assert text in causes(kind)


class NumeratorInHalf(Attention):
    """The exponentials lose digits where they meet V, as kernels store them, and not in the sum."""

    def softmax(self, scores: Array) -> Array:
        """Round the numerator alone."""
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
        rounded = powers.astype(np.float16).astype(powers.dtype)
        return np.asarray(rounded / powers.sum(axis=-1, keepdims=True))


def test_exponentials_rounded_behind_their_sum_are_no_table(
    causes: Callable[[type[Attention]], str],
) -> None:
    """The stage and its dtype are said."""
    said = causes(NumeratorInHalf)
    assert "exponentials that are multiplied with V" in said
    assert "rounded to float16" in said
    assert "table" not in said


class TilesInBfloat16(Attention):
    """Exponentials and values meet in bfloat16, whatever the inputs' dtype."""

    def softmax(self, scores: Array) -> Array:
        """Round the numerator alone."""
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
        rounded = powers.astype(numpy_dtype("bfloat16")).astype(powers.dtype)
        return np.asarray(rounded / powers.sum(axis=-1, keepdims=True))

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Round the values too."""
        rounded = v.astype(numpy_dtype("bfloat16")).astype(v.dtype)
        return super().apply_weights(weights, rounded)


class TableOfPowers(Attention):
    """Wrong in another way: exp is read from a table of 64 steps a unit."""

    def softmax(self, scores: Array) -> Array:
        """Round the scores to a step."""
        top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        powers = np.exp(np.floor((scores - top) * 64) / 64)
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def test_exponentials_on_a_grid_are_rounded_and_others_read_from_a_table(
    causes: Callable[[type[Attention]], str],
) -> None:
    """Values that are rounded too hide the stage from the errors: the grid shows it."""
    rounded, table = causes(TilesInBfloat16), causes(TableOfPowers)
    assert "the exponentials are rounded to bfloat16 before they meet V" in rounded
    assert "table" not in rounded
    assert "rounded to" not in table
