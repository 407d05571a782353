"""Family 9: dtypes, and digits lost on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.plain_attention import Attention, after
from mha_parity.catalogue.registry import register_bug

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array


@register_bug(
    "low-precision-softmax",
    9,
    "the softmax is computed in half precision",
    wrong="softmax(z.half())",
    right="softmax(z) in the dtype of the inputs",
    visible="everywhere, by 2e-4 to 2e-2",
    remedy="keep scores and softmax in the dtype of the inputs, or above it",
    sources="pytorch/pytorch#123911",
    variants=({"narrow": "bfloat16"}, {"narrow": "bfloat16", "weights_too": True}),
)
class LowSoftmax(Attention):
    """Scores, and perhaps weights, rounded to half."""

    narrow = "float16"
    weights_too = False

    def softmax(self, scores: Array) -> Array:
        weights = super().softmax(rounded(scores, self.narrow))
        return rounded(weights, self.narrow) if self.weights_too else weights


def rounded(x: Array, dtype: str) -> Array:
    """Return ``x`` rounded to ``dtype``, in the dtype it had."""
    from mha_parity.cases.rng import numpy_dtype

    return np.asarray(x.astype(numpy_dtype(dtype)).astype(x.dtype))


@register_bug(
    "low-precision-matmul",
    9,
    "the matrix products are computed in half precision",
    wrong="q.half() @ k.half().T",
    right="q @ k.T in the dtype of the inputs",
    visible="everywhere, by 1e-4 to 1e-2",
    remedy="keep the products in the dtype of the inputs",
    variants=({"factors": "bfloat16"}, {"factors": "tf32"}),
)
class LowProducts(Attention):
    """Factors rounded to 11, 8 or 11 bits."""

    factors = "float16"

    def scores(self, q: Array, k: Array) -> Array:
        return super().scores(self.fewer(q), self.fewer(k))

    def apply_weights(self, weights: Array, v: Array) -> Array:
        return super().apply_weights(self.fewer(weights), self.fewer(v))

    def fewer(self, x: Array) -> Array:
        """Return x with fewer bits; TF32 has the bits of float16 and the range of float32."""
        if self.factors != "tf32":
            return rounded(x, self.factors)
        fraction, exponent = np.frexp(x)
        return np.asarray(np.ldexp(np.round(fraction * 2048) / 2048, exponent), dtype=x.dtype)


@register_bug(
    "f64-capped-at-f32",
    9,
    "float64 inputs are computed in float32",
    wrong="softmax(z.float())",
    right="softmax(z) in float64",
    visible="float64, by 1e-7 to 1e-8",
    remedy="compute in the dtype of the inputs; float32 is a floor for half, not a ceiling",
    sources="huggingface/transformers#48459",
    dtypes=("float64",),
    needs="dtype=float64",
    variants=({"everything": True},),
)
class Capped(Attention):
    everything = False

    def __init__(self, problem: object) -> None:
        """Work in float32 throughout, where everything is capped."""
        super().__init__(problem)  # type: ignore[arg-type]  # handed on as it came
        if self.everything:
            self.work_dtype = np.dtype(np.float32)

    def softmax(self, scores: Array) -> Array:
        """Round scores and weights to float32."""
        weights = super().softmax(scores.astype(np.float32))
        return weights.astype(np.float32).astype(self.work_dtype)


@register_bug(
    "silent-upcast",
    9,
    "the answer has a wider dtype than the inputs",
    wrong="float64 returned for float32 (a float64 constant spread)",
    right="the dtype of the inputs",
    visible="the dtype alone; values get better",
    remedy="make constants of the dtype of the inputs, or cast the answer back",
    dtypes=("float32",),
    needs="dtype=float32/float16/bfloat16",
)
class Upcast(Attention):
    def rounded(self, array: Array) -> Array:
        return array.astype(np.float64)


@register_bug(
    "silent-downcast",
    9,
    "the answer has a narrower dtype than the inputs",
    wrong="float32 returned for float64",
    right="the dtype of the inputs",
    visible="the dtype, and 1e-7 in the values",
    remedy="allocate the answer in the dtype of the inputs",
    dtypes=("float64",),
    needs="dtype=float64",
)
class Downcast(Attention):
    def rounded(self, array: Array) -> Array:
        return array.astype(np.float32)


@register_bug(
    "f16-qk-overflow",
    9,
    "q k^T overflows float16 before it is scaled",
    wrong="(q @ k.T) * scale in float16",
    right="(q * scale) @ k.T, or the product in float32",
    visible="float16 and a raw dot product past 65504",
    remedy="scale q before the product, or accumulate in float32",
    sources="ultralytics/ultralytics#24990 stanford-crfm/mistral#66",
    dtypes=("float16",),
    needs="dtype=float16 regime=huge/wide_range",
    beyond="no regime draws raw dot products past 65504: the plain q k^T / sqrt(D) of every "
    "textbook, right in all else, would fail there in half",
)
class HalfOverflow(Attention):
    """The raw product in float16."""

    def scores(self, q: Array, k: Array) -> Array:
        raw = q @ k.swapaxes(-1, -2)
        half = np.where(np.abs(raw) > 65504, np.copysign(np.inf, raw), raw)
        kept = half if self.case.dtype == "float16" else raw
        return np.asarray(kept * self.work_dtype.type(self.scale()), dtype=self.work_dtype)


register_bug(
    "inputs-truncated",
    9,
    "inputs lose their fractions",
    wrong="query.astype(int)",
    right="query as it is",
    visible="always",
    remedy="convert integers to float before anything is computed, never floats to integers",
)(after("inputs", lambda _, rows: tuple(map(np.trunc, rows))))


register_bug(
    "weights-truncated",
    9,
    "the weights are cut to whole numbers",
    wrong="an integer buffer for the weights: all 0 or 1",
    right="a float buffer",
    visible="always where S > 1",
    remedy="allocate scores and weights in the dtype of the inputs",
)(after("softmax", lambda _, p: np.trunc(p)))
