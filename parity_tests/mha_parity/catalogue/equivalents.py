"""Attentions that look like bugs and are none: what the judge must not take for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.plain_attention import Attention
from mha_parity.catalogue.registry import register_bug

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

SOFTMAX = "exp(z - max z) / sum exp(z - max z)"
NOTHING = "nothing to mend"


@register_bug(
    "scale-in-halves",
    3,
    "the scale is split between query and key",
    wrong="(q scale^(1/2)) (k scale^(1/2))^T",
    right="scale q k^T",
    visible="never",
    remedy=NOTHING,
    equivalent="both factors leave the sum over the head width, and their product is the scale",
)
class Halves(Attention):
    """As kernels do against overflow in half precision."""

    def scores(self, q: Array, k: Array) -> Array:
        scale = self.scale()
        root = self.work_dtype.type(np.sqrt(abs(scale)))
        return np.asarray((q * np.copysign(root, scale)) @ (k * root).swapaxes(-1, -2))


@register_bug(
    "softmax-exact-base2",
    4,
    "the softmax is computed with powers of 2",
    wrong="2^(log2(e) (z - max z)) / sum of the same",
    right=SOFTMAX,
    visible="never",
    remedy=NOTHING,
    equivalent="2^(x log2(e)) = e^x",
)
class ExactBase2(Attention):
    """As kernels do whose hardware has exp2 alone."""

    def exp(self, x: Array) -> Array:
        """Return e^x."""
        return np.asarray(np.exp2(x * self.work_dtype.type(np.log2(np.e))))


@register_bug(
    "softmax-divided-late",
    4,
    "the values are mixed with powers, and divided by their sum behind that",
    wrong="(exp(z - max z) v) / sum exp(z - max z)",
    right=f"({SOFTMAX}) v",
    visible="never",
    remedy=NOTHING,
    equivalent="the sum of a row is one number, and leaves the sum over the keys",
)
class DividedLate(Attention):
    """As the flash algorithm does."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        top = np.max(weights, axis=-1, keepdims=True, initial=0)
        powers = weights / np.where(top > 0, top, self.work_dtype.type(1))
        total = powers.sum(axis=-1, keepdims=True)
        empty = np.zeros((*weights.shape[:-1], v.shape[-1]), dtype=weights.dtype)
        return (powers @ v) / total if weights.shape[-1] else empty


@register_bug(
    "softmax-another-shift",
    4,
    "something else than the maximum is subtracted before exp, within its range",
    wrong="exp(z - max z - 1) / sum exp(z - max z - 1)",
    right=SOFTMAX,
    visible="never",
    remedy=NOTHING,
    equivalent="a constant of the row leaves both sums as e^-1 and cancels",
)
class AnotherShift(Attention):
    """A maximum that is one too large, as of a block that is looked at first."""

    def exp(self, x: Array) -> Array:
        """Return e^(x - 1)."""
        return np.asarray(np.exp(x - self.work_dtype.type(1)))


@register_bug(
    "masks-joined-first",
    5,
    "the masks are joined to one boolean and one float mask before they are applied",
    wrong="where(a | b, -inf, z + bias)",
    right="z + a + b, with -inf where a mask is True",
    visible="never",
    remedy=NOTHING,
    equivalent="z - inf = -inf whatever z is, and adding is associative",
)
class JoinedFirst(Attention):
    def apply_mask(self, scores: Array, mask: Array) -> Array:
        hidden = mask == -np.inf
        biased = scores + np.where(hidden, self.work_dtype.type(0), mask)
        return np.where(hidden, self.work_dtype.type(-np.inf), biased)


@register_bug(
    "heads-one-by-one",
    2,
    "the heads are computed in a loop and written next to each other",
    wrong="for h: out[:, :, h d:(h + 1) d] = P_h v_h",
    right="merge all heads at once",
    visible="never",
    remedy=NOTHING,
    equivalent="head h owns the channels h d ... (h + 1) d - 1 either way",
)
class OneByOne(Attention):
    def merge(self, x: Array) -> Array:
        n, heads, length, width = x.shape
        merged = np.empty((n, length, heads * width), dtype=x.dtype)
        for head in range(heads):
            merged[:, :, head * width : (head + 1) * width] = x[:, head]
        return merged
