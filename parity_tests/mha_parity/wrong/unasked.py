"""Bugs in what no case asks for: dropout, integers, and inputs that torch refuses.

Each is right wherever the harness looks. They are here so that the matrix says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.wrong.bug import wrong
from mha_parity.wrong.plain import Attention

if TYPE_CHECKING:
    from mha_parity.values import Array
    from mha_parity.wrong.plain import Triple

NO_DROPOUT = "no case has dropout: two right programs draw different numbers to drop"


class Dropping(Attention):
    """Attention with dropout on its weights, by a stream of its own."""

    dropout = 0.0

    def dropped(self, weights: Array) -> Array:
        """Return the weights with some of them 0 and the rest larger, as torch has it."""
        chance = np.random.Generator(np.random.Philox(self.case.seed))
        kept = chance.random(weights.shape) >= self.dropout
        return np.asarray(weights * kept / (1 - self.dropout), dtype=weights.dtype)


@wrong(
    "weights-before-dropout",
    8,
    "the weights returned are those before dropout",
    wrong="return P, and dropout(P) V",
    right="return dropout(P), whose rows need not sum to 1, and dropout(P) V",
    visible="dropout above 0 in training mode, weights wanted",
    remedy="return what V was multiplied with, or say that you do not",
    sources="pytorch/pytorch#42929 pytorch/pytorch#33360 facebookresearch/fairseq#351",
    beyond=NO_DROPOUT,
)
class WeightsBeforeDropout(Dropping):
    """Clean weights to the caller, dropped ones to the values."""

    def mix(self, weights: Array, v: Array) -> Array:
        """Drop here, where the weights are already on their way out."""
        return super().mix(self.dropped(weights), v)


@wrong(
    "int-truncation",
    9,
    "integer inputs stay integers, and so do weights and scores",
    wrong="np.array([[1, 0], [0, 1]]) @ W.astype(int)",
    right="integers become floats at the border, or are refused",
    visible="integer queries, keys or values",
    remedy="convert integers to a floating dtype, or refuse them",
    beyond="no case has integers: torch refuses them",
)
class IntegersStay(Attention):
    """Cuts what is computed from integers down to integers."""

    def softmax(self, masked: Array) -> Array:
        """Keep the inputs' kind of number."""
        weights = super().softmax(masked)
        whole = np.issubdtype(self.problem.query.dtype, np.integer)
        return np.trunc(weights) if whole else weights


@wrong(
    "heads-not-dividing",
    14,
    "the last channels are dropped where the heads do not divide the width",
    wrong="D = E // H, the last E mod H channels unread",
    right="refuse an embed_dim that num_heads does not divide",
    visible="embed_dim not divisible by num_heads",
    remedy="raise an error that names both numbers",
    sources="Unity-Technologies/ml-agents#4840",
    beyond="no case has such a width: torch refuses it",
)
class HeadsNotDividing(Attention):
    """Splits what can be split."""

    def split(self, x: Array, heads: int) -> Array:
        """Leave the remainder out."""
        return super().split(x[..., : x.shape[-1] // heads * heads], heads)


@wrong(
    "kv-length-mismatch",
    14,
    "keys and values of different length are taken for one sequence",
    wrong="S taken from the keys alone, or from the shorter",
    right="refuse keys and values of different length",
    visible="fewer keys than values, or more",
    remedy="raise an error that names both lengths",
    sources="pytorch/pytorch#193728",
    beyond="no case has such lengths: torch's layer refuses them",
)
class LengthsMismatched(Attention):
    """Goes as far as the shorter one."""

    def inputs(self) -> Triple:
        """Cut keys and values to one length."""
        query, key, value = super().inputs()
        both = min(key.shape[1], value.shape[1])
        return query, key[:, :both], value[:, :both]
