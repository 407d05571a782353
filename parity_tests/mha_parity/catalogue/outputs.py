"""Family 8: what is returned, of output and of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.plain_attention import Attention, after
from mha_parity.catalogue.registry import register_bug

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

ASKED = "weights=averaged/per_head"


@register_bug(
    "weights-sum",
    8,
    "the weights are summed over the heads",
    wrong="P.sum(axis=1)",
    right="P.mean(axis=1)",
    visible="averaged weights of more than one head; the output is right",
    remedy="return the mean over the heads",
    needs="weights=averaged heads=many",
)
class WeightsSum(Attention):
    def averaged_weights(self, weights: Array) -> Array:
        return np.asarray(weights.sum(axis=1))


@register_bug(
    "weights-wrong-head",
    8,
    "the weights of one head are returned for all",
    wrong="P[:, 0]",
    right="P.mean(axis=1), or P of every head where that is asked for",
    visible="weights of more than one head; the output is right",
    remedy="return the mean over the heads, or all heads",
    sources="facebookresearch/fairseq#3365",
    needs=f"{ASKED} heads=many",
    variants=({"head": -1}, {"each": True}, {"each": True, "head": -1}),
)
class WrongHead(Attention):
    """One head's weights; ``each``: not where those of every head are asked for."""

    head = 0
    each = False

    def returned_weights(self, weights: Array) -> Array:
        if self.each and self.case.weights == "per_head":
            return weights
        return weights * 0 + weights[:, self.head, None]


register_bug(
    "weights-average-for-each",
    8,
    "the averaged weights are returned where each head's were asked for",
    wrong="P.mean(axis=1)",
    right="P, (N, H, L, S)",
    visible="weights per head; the output is right",
    remedy="return all heads when average_attn_weights=False",
    sources="facebookresearch/fairseq#3365",
    needs="weights=per_head heads=many",
)(after("returned_weights", lambda _, p: p * 0 + p.mean(axis=1, keepdims=True)))


@register_bug(
    "weights-presoftmax",
    8,
    "the returned weights are those before the softmax, or before the mask",
    wrong="scale q k^T (+ masks), or its softmax without masks",
    right="what multiplies v",
    visible="weights; the output is right",
    remedy="return what multiplies v",
    needs=ASKED,
    variants=({"stage": "masked"}, {"stage": "unmasked"}),
)
class Presoftmax(Attention):
    stage = "scores"

    def scores(self, q: Array, k: Array) -> Array:
        self.kept = super().scores(q, k)
        return self.kept

    def mask_scores(self, scores: Array) -> Array:
        """Keep the masked scores, where they are what is returned."""
        masked = super().mask_scores(scores)
        self.kept = masked if self.stage == "masked" else self.kept
        return masked

    def returned_weights(self, weights: Array) -> Array:  # noqa: ARG002  (returns another stage)
        return Attention.softmax(self, self.kept) if self.stage == "unmasked" else self.kept


register_bug(
    "weights-transposed",
    8,
    "the weights are returned transposed",
    wrong="(N, S, L)",
    right="(N, L, S): a row for each query",
    visible="weights; the output is right",
    remedy="return the weights as (…, L, S)",
    needs=ASKED,
)(after("returned_weights", lambda _, p: p.swapaxes(-1, -2)))


register_bug(
    "weights-no-added-column",
    8,
    "the columns of appended keys are cut off the weights",
    wrong="S columns",
    right="S + 1 or S + 2 columns: appended keys have weight too",
    visible="weights with bias_kv or zero_attn; the output is right",
    remedy="return all columns",
    needs=f"{ASKED} bias_kv=yes zero_attn=yes",
)(after("returned_weights", lambda a, p: p[..., : a.problem.key.shape[1]]))


register_bug(
    "weights-renormalised",
    8,
    "the weights returned are divided by their largest, for a picture",
    wrong="P / P.max()",
    right="P",
    visible="weights; the output is right",
    remedy="return what multiplies v",
    needs=ASKED,
)(after("returned_weights", lambda _, p: p / p.max(axis=-1, keepdims=True, initial=0)))


@register_bug(
    "residual-added",
    8,
    "the query is added to the output",
    wrong="query + attention(query, key, value)",
    right="attention(query, key, value)",
    visible="always",
    remedy="leave the residual connection to the block around the layer",
    needs="form=mha",
)
class Residual(Attention):
    def project_output(self, x: Array) -> Array:
        """Add the query, which has the output's shape in a layer."""
        own = super().project_output(x)
        query = self.inputs()[0]
        if query.shape != own.shape:
            raise ValueError("the query has not the output's shape")
        return own + query


register_bug(
    "output-doubled",
    8,
    "the output is twice as large as it should be",
    wrong="2 P v",
    right="P v",
    visible="always",
    remedy="add the result to the output once",
)(after("project_output", lambda _, output: output + output))


@register_bug(
    "input-returned",
    8,
    "the query comes back as it was given",
    wrong="output = query",
    right="output = attention(query, key, value)",
    visible="always",
    remedy="return what was computed",
    variants=({"returned": 2},),
)
class InputReturned(Attention):
    """An input in place of the output: the query, or the value where its shape fits."""

    returned = 0

    def project_output(self, x: Array) -> Array:
        given = self.inputs()[self.returned]
        if given.shape != super().project_output(x).shape:
            raise ValueError("the input has not the output's shape")
        return given


@register_bug(
    "norm-inside",
    8,
    "the output is layer-normalised",
    wrong="(y - mean) / sqrt(variance + eps)",
    right="y",
    visible="always",
    remedy="leave the normalisation to the block around the layer",
    variants=({"residual": True},),
)
class NormInside(Attention):
    """A LayerNorm at the end."""

    residual = False

    def project_output(self, x: Array) -> Array:
        own = super().project_output(x)
        query = self.inputs()[0]
        own = own + query if self.residual and query.shape == own.shape else own
        centred = own - own.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        return np.asarray(centred / np.sqrt(variance + self.work_dtype.type(1e-5)))


@register_bug(
    "rotary-applied",
    8,
    "q and k are rotated by their positions",
    wrong="rotary embedding of q and k before the scores",
    right="no positions: permuting rows permutes the answer",
    visible="more than one position and D > 1",
    remedy="leave rotary embedding out: torch.nn.MultiheadAttention has none",
    variants=({"paired": True},),
)
class Rotary(Attention):
    """A rotary embedding, of halves or of neighbours."""

    paired = False

    def scores(self, q: Array, k: Array) -> Array:
        return super().scores(self.turned(q), self.turned(k))

    def turned(self, x: Array) -> Array:
        """Turn each pair of channels by position times frequency."""
        half = x.shape[-1] // 2
        frequency = 10000.0 ** (-np.arange(half) / max(half, 1))
        angle = (np.arange(x.shape[-2])[:, None] * frequency).astype(self.work_dtype)
        first, second = self.pairs(half)
        a, b = x[..., first], x[..., second]
        turned = x.copy()
        turned[..., first] = a * np.cos(angle) - b * np.sin(angle)
        turned[..., second] = a * np.sin(angle) + b * np.cos(angle)
        return turned

    def pairs(self, half: int) -> tuple[slice, slice]:
        if self.paired:
            return slice(0, 2 * half, 2), slice(1, 2 * half, 2)
        return slice(0, half), slice(half, 2 * half)


@register_bug(
    "positions-added",
    8,
    "a bias by distance is added to the scores",
    wrong="scores - m |i - j|, m = 2^(-8 h / H)",
    right="scores without positions",
    visible="more than one position",
    remedy="leave the positional bias out: torch.nn.MultiheadAttention has none",
)
class Distances(Attention):
    """A linear bias by distance, each head with its own slope."""

    def scores(self, q: Array, k: Array) -> Array:
        heads = self.problem.num_heads
        slopes = 2.0 ** (-8.0 * np.arange(1, heads + 1) / max(heads, 1))
        distance = np.abs(np.arange(q.shape[2])[:, None] - np.arange(k.shape[2]))
        bias = (slopes[:, None, None] * distance).astype(self.work_dtype)
        return np.asarray(super().scores(q, k) - bias)


@register_bug(
    "values-returned",
    8,
    "the values are returned unmixed",
    wrong="output row i = v_i",
    right="output row i = sum over j of P_ij v_j",
    visible="S > 1",
    remedy="multiply the weights by the values",
)
class ValuesReturned(Attention):
    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return the values, cut or repeated to L rows."""
        rows = np.arange(weights.shape[2]) % max(v.shape[2], 1)
        return v[:, :, rows] if v.shape[2] else super().apply_weights(weights, v)


@register_bug(
    "output-rounded",
    8,
    "the output is rounded to a few decimals",
    wrong="np.round(output, 4)",
    right="output",
    visible="everywhere, below the rounding",
    remedy="round when printing, not when returning",
    variants=({"digits": 3}, {"digits": 6}, {"digits": 2}, {"digits": 5}, {"digits": 8}),
)
class OutputRounded(Attention):
    digits = 4

    def project_output(self, x: Array) -> Array:
        return np.asarray(np.round(super().project_output(x), self.digits))


register_bug(
    "zeros-returned",
    8,
    "the answer is zero everywhere",
    wrong="output = 0",
    right="output = softmax(scale q k^T) v",
    visible="always",
    remedy="write the result into the array that is returned",
    sources="ScalingIntelligence/KernelBench#165",
)(after("project_output", lambda _, output: np.zeros_like(output)))
