"""Bugs that show where a value is infinite, or the largest finite number, and nowhere else.

Each computes the right answer as long as no intermediate result leaves the finite numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.rng import largest_number
from mha_parity.catalogue.conditional_bugs import Planted
from mha_parity.catalogue.plain_attention import Attention

if TYPE_CHECKING:
    from mha_parity.catalogue.plain_attention import Triple
    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case


class ValuesChanged(Attention):
    """Change the values as they come in, or the value heads before the product and after it."""

    share = 1.0  # of the largest number of the dtype

    def values(self, value: Array) -> Array:
        """Return the values (N, S, vdim) that are projected."""
        return value

    def change(self, v: Array) -> Array:
        """Return the value heads (N, H, S', Dv) that are multiplied by the weights."""
        return v

    def restore(self, heads: Array) -> Array:
        """Return the heads that the unchanged values have."""
        return heads

    def inputs(self) -> Triple:
        """Return query, key and the changed values."""
        query, key, value = super().inputs()
        return query, key, self.values(value)

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return P v by the changed values."""
        return self.restore(super().apply_weights(weights, self.change(v)))

    def limit(self) -> float:
        """Return a share of the largest finite number of the problem's dtype."""
        return self.share * largest_number(self.case.dtype)

    def stored(self, array: Array) -> Array:
        """Return an intermediate result as the problem's dtype holds it."""
        return self.precise(self.rounded(array))


class ValuesClamped(ValuesChanged):
    """Clamp the values to the finite numbers, as ``nan_to_num(v)`` does."""

    def values(self, value: Array) -> Array:
        """Return the values within the limit."""
        return np.clip(value, -self.limit(), self.limit())


class InfinityZeroed(ValuesChanged):
    """Replace what is not finite in the values by 0."""

    def values(self, value: Array) -> Array:
        """Return the finite values, 0 elsewhere."""
        return np.where(np.isfinite(value), value, 0)


class OutputSanitised(ValuesChanged):
    """Replace NaN by 0 and infinity by the largest number, as ``nan_to_num`` does."""

    def restore(self, heads: Array) -> Array:
        """Return the heads with finite numbers for NaN and infinity."""
        return np.nan_to_num(heads, posinf=self.limit(), neginf=-self.limit())


class OutputClamped(ValuesChanged):
    """Clamp the heads to the finite numbers; NaN stays."""

    def restore(self, heads: Array) -> Array:
        """Return the heads within the limit."""
        return np.clip(heads, -self.limit(), self.limit())


class MeanSubtracted(Attention):
    """Subtract the mean of the values before the product and add it after: inf - inf is NaN."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return P (v - mean) + mean."""
        mean = v.mean(axis=2, keepdims=True)
        return np.asarray(super().apply_weights(weights, v - mean) + mean)


class ValuesInTwoParts(Attention):
    """Multiply the upper and the lower digits of each value separately: inf - inf is NaN."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return P upper + P lower; upper = v rounded to half of its digits."""
        digits = np.dtype(np.float32 if self.work_dtype == np.float64 else np.float16)
        fraction, exponent = np.frexp(v)
        upper = np.ldexp(fraction.astype(digits).astype(self.work_dtype), exponent)
        return super().apply_weights(weights, upper) + super().apply_weights(weights, v - upper)


class HiddenSubtracted(Attention):
    """Subtract what hidden keys add from the sum over all keys: 0 times infinity is NaN."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return P v - (P hidden) v."""
        hidden = self.problem.hidden()
        return super().apply_weights(weights, v) - super().apply_weights(weights * hidden, v)


class PickedByIdentity(ValuesChanged):
    """Pick samples, heads or channels by a product with the identity: 0 times infinity is NaN."""

    subscripts = "hg,ngsd->nhsd"
    axis = 1

    def change(self, v: Array) -> Array:
        """Return the values times the identity along one axis."""
        identity = np.eye(v.shape[self.axis], dtype=v.dtype)
        return np.asarray(np.einsum(self.subscripts, identity, v))


class WeightsFloored(Attention):
    """Raise each weight to the smallest number above 0: a hidden infinity comes out."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return max(P, tiny) v."""
        tiny = np.finfo(self.work_dtype).smallest_normal
        return super().apply_weights(np.maximum(weights, tiny), v)


class ValuesDoubled(ValuesChanged):
    """Double the values before the product and halve the heads after it."""

    def change(self, v: Array) -> Array:
        """Return 2 v."""
        return self.stored(v * 2)

    def restore(self, heads: Array) -> Array:
        """Return half the heads."""
        return np.asarray(heads / 2)


class ValuesSplit(ValuesChanged):
    """Split each value by Dekker's product with 2^k + 1, which overflows."""

    def change(self, v: Array) -> Array:
        """Return upper + lower of each value."""
        large = self.stored(v * 17)
        upper = large - (large - v)
        return np.asarray(upper + (v - upper))


class ValuesMapped(ValuesChanged):
    """Map the values to 0 ... 1 by their extremes, and the heads back: max - min overflows."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return P ((v - min) / (max - min)) (max - min) + min."""
        low = v.min(initial=0)
        width = self.stored(np.asarray(v.max(initial=0) - low))
        width = np.where(width > 0, width, 1)
        return np.asarray(super().apply_weights(weights, (v - low) / width) * width + low)


class ValuesByNorm(ValuesChanged):
    """Divide each value row by its norm, and multiply its weight by it: a square overflows."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return (P norm) (v / norm)."""
        norm = np.sqrt(self.stored((v * v).sum(axis=-1, keepdims=True)))
        norm = np.where(norm > 0, norm, 1)
        return super().apply_weights(weights * norm.swapaxes(-1, -2), v / norm)


class SummedUnnormalised(ValuesChanged):
    """Divide by the sum of exponentials after a product without the maximum subtracted."""

    def softmax(self, scores: Array) -> Array:
        """Return the weights, and keep the exponentials."""
        self.powers = self.exp(scores)
        return super().softmax(scores)

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return exp(z) v / sum exp(z)."""
        del weights
        product = self.stored(super().apply_weights(self.powers, v))
        return np.asarray(product / self.powers.sum(axis=-1, keepdims=True))


class WeightsCounted(ValuesChanged):
    """Multiply the weights by the number of keys, and the heads by its inverse."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return (S P) v / S."""
        keys = weights.shape[-1]
        return np.asarray(self.stored(super().apply_weights(weights * keys, v)) / keys)


class LargestIsPadding(ValuesChanged):
    """Take the largest finite number for a mark of padding."""

    def values(self, value: Array) -> Array:
        """Return the values, 0 for the mark."""
        return np.where(np.abs(value) == self.limit(), 0, value)


def _picked(axis: int, subscripts: str) -> type[Attention]:
    return type("Picked", (PickedByIdentity,), {"axis": axis, "subscripts": subscripts})


INFINITE: tuple[tuple[str, type[Attention]], ...] = (
    ("an infinite value is clamped", ValuesClamped),
    ("an infinite value is replaced by 0", InfinityZeroed),
    ("an infinite output is clamped, NaN is 0", OutputSanitised),
    ("an infinite output is clamped", OutputClamped),
    ("a mean over an infinite value is subtracted", MeanSubtracted),
    ("an infinite value is split into two parts", ValuesInTwoParts),
    ("what is hidden is subtracted, a value is infinite", HiddenSubtracted),
    ("samples are picked by the identity, a value is infinite", _picked(0, "nm,mhsd->nhsd")),
    ("heads are picked by the identity, a value is infinite", _picked(1, "hg,ngsd->nhsd")),
    ("channels are picked by the identity, a value is infinite", _picked(3, "de,nhse->nhsd")),
    ("weights have a floor, a hidden value is infinite", WeightsFloored),
)
LARGEST: tuple[tuple[str, type[Attention]], ...] = (
    ("the largest value is doubled", ValuesDoubled),
    ("the largest value is split by a product", ValuesSplit),
    ("the largest value is squared", ValuesByNorm),
    ("the largest values of both signs are subtracted", ValuesMapped),
    ("the largest value is times exp without the maximum", SummedUnnormalised),
    ("the largest value is times weights times S", WeightsCounted),
    ("values are clamped to half the largest", type("Clamped", (ValuesClamped,), {"share": 0.5})),
    ("the largest value marks padding", LargestIsPadding),
)


def planted_extreme_values() -> tuple[Planted, ...]:
    """Return the planted bugs of this family."""
    return (
        *(
            Planted(condition=condition, family="infinite value", holds=_is_infinite, kind=kind)
            for condition, kind in INFINITE
        ),
        *(
            Planted(condition=condition, family="largest value", holds=_is_largest, kind=kind)
            for condition, kind in LARGEST
        ),
    )


def _is_infinite(case: Case) -> bool:
    return case.regime == "infinite_value"


def _is_largest(case: Case) -> bool:
    return case.regime == "largest_value"
