"""Family 3: the factor on q k^T."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.plain_attention import Attention, after
from mha_parity.catalogue.registry import register_bug

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array

RIGHT = "scale = 1/sqrt(head_dim)"
REMEDY = "divide the scores by sqrt(head_dim), once, before masks and softmax"
NEEDS = "scale=default"


class _Scaled(Attention):
    """Another default scale; a scale that the caller gives is obeyed."""

    def default(self) -> float:
        """Return the factor used where the caller gives none."""
        return 1.0

    def scale(self) -> float:
        """Return the wrong default, or what the caller gave."""
        given = self.problem.given_scale
        return self.default() if given is None else given


def default_scale(factor: Callable[[Attention], float]) -> type[Attention]:
    """Return the attention with this factor where the caller gives none."""
    return type("DefaultScale", (_Scaled,), {"default": lambda attention: float(factor(attention))})


register_bug(
    "scale-none",
    3,
    "the scores are not scaled",
    wrong="scale = 1",
    right=RIGHT,
    visible="D > 1 and S > 1",
    remedy=REMEDY,
    sources="mlc-ai/mlc-llm#3426",
    needs=NEEDS,
)(default_scale(lambda _: 1.0))


register_bug(
    "scale-dmodel",
    3,
    "the scores are divided by the root of the whole width",
    wrong="scale = 1/sqrt(embed_dim)",
    right=RIGHT,
    visible="more than one head and S > 1",
    remedy=REMEDY,
    sources="lucidrains/vit-pytorch#65 omihub777/ViT-CIFAR#11 "
    "FareedKhan-dev/train-llm-from-scratch#3 aladdinpersson/Machine-Learning-Collection#65 "
    "Graylab/DL4Proteins-notebooks#12",
    needs=f"{NEEDS} heads=many",
)(default_scale(lambda a: a.case.embed_dim**-0.5))


register_bug(
    "scale-num-heads",
    3,
    "the scores are divided by the root of the number of heads",
    wrong="scale = 1/sqrt(num_heads)",
    right=RIGHT,
    visible="H unlike D: at E = 16, H = 4 or E = 64, H = 8 it is right",
    remedy=REMEDY,
    sources="tenstorrent/tt-metal#56789",
    needs=NEEDS,
)(default_scale(lambda a: a.case.heads_count**-0.5))


@register_bug(
    "scale-zero-as-default",
    3,
    "a given scale of 0 is taken for none",
    wrong="scale = scale or 1/sqrt(head_dim)",
    right="scale = 1/sqrt(head_dim) if scale is None else scale",
    visible="a scale of 0 and S > 1",
    remedy="compare with None: 0 is a scale, with which all keys weigh the same",
    needs="scale=given masked_rows=none",
)
class ScaleZero(Attention):
    def scale(self) -> float:
        return self.problem.given_scale or 1 / math.sqrt(self.problem.head_dim)


register_bug(
    "scale-sign-lost",
    3,
    "a negative scale loses its sign",
    wrong="q * abs(scale)**0.5 @ (k * abs(scale)**0.5).T",
    right="the sign of the scale on one of the factors",
    visible="a negative scale and S > 1",
    remedy="split the root of the magnitude over both factors, and give one of them the sign",
    needs="scale=given masked_rows=none attn=none/bool2d/float2d",
)(after("scale", lambda _, scale: abs(scale)))


register_bug(
    "scale-linear",
    3,
    "the scores are divided by the head width, not by its root",
    wrong="scale = 1/head_dim, the same as scaling q and the scores both",
    right=RIGHT,
    visible="D > 1",
    remedy=REMEDY,
    sources="huggingface/transformers#38290 charliezchen/scaling-matrix-preconditioning#2",
    aliases="scale-twice",
    needs=NEEDS,
)(default_scale(lambda a: 1 / a.problem.head_dim))


register_bug(
    "scale-inverted",
    3,
    "the scores are multiplied by the root of the head width",
    wrong="scale = sqrt(head_dim)",
    right=RIGHT,
    visible="D > 1",
    remedy=REMEDY,
    sources="esceptico/perceiver-io#9",
    needs=NEEDS,
)(default_scale(lambda a: a.problem.head_dim**0.5))


@register_bug(
    "scale-after-softmax",
    3,
    "the scale is applied to the weights, after the softmax",
    wrong="softmax(q k^T) scale: rows sum to 1/sqrt(head_dim)",
    right="softmax(scale q k^T)",
    visible="D > 1, at S = 1 too",
    remedy="scale the scores, not the weights",
    sources="FrancescoSaverioZuppichini/ViT#2",
)
class ScaleAfter(Attention):
    """Weights scaled in place of scores."""

    def scale(self) -> float:
        return 1.0

    def softmax(self, scores: Array) -> Array:
        return np.asarray(super().softmax(scores) * self.work_dtype.type(self.problem.scale))


@register_bug(
    "scale-padded-dim",
    3,
    "the scale is taken from the head width rounded up to a block",
    wrong="scale = 1/sqrt(ceil(head_dim / 8) 8), or / 16",
    right=RIGHT,
    visible="D that is not a multiple of the block",
    remedy="compute the scale from the true head width, before padding",
    sources="tile-ai/tilelang-ascend#1670 intel/ipex-llm#12619",
    needs=NEEDS,
    variants=({"block": 16}, {"block": 4}, {"block": 32}, {"block": 64}),
)
class ScalePadded(_Scaled):
    block = 8

    def default(self) -> float:
        return float((-(-self.problem.head_dim // self.block) * self.block) ** -0.5)


register_bug(
    "scale-hardcoded-64",
    3,
    "the scale is a constant",
    wrong="scale = 1/8, whatever the head width",
    right=RIGHT,
    visible="D unlike 64",
    remedy=REMEDY,
    sources="pytorch/text#1432",
    needs=NEEDS,
)(default_scale(lambda _: 0.125))


@register_bug(
    "scale-seqlen",
    3,
    "the scores are divided by the root of the number of keys",
    wrong="scale = 1/sqrt(S)",
    right=RIGHT,
    visible="S unlike D",
    remedy="take the last axis of q or k, which is head_dim, not the last axis of the scores",
    needs=NEEDS,
    variants=({"counted": "queries"},),
)
class ScaleLength(_Scaled):
    counted = "keys"

    def default(self) -> float:
        return float(max(getattr(self.case, self.counted), 1) ** -0.5)


register_bug(
    "scale-batch",
    3,
    "the scores are divided by the root of the batch size",
    wrong="scale = 1/sqrt(q.shape[0])",
    right=RIGHT,
    visible="N unlike D",
    remedy="take the last axis of q or k, which is head_dim, not its first",
    needs=NEEDS,
)(default_scale(lambda a: max(a.case.batch, 1) ** -0.5))


register_bug(
    "scale-includes-mask",
    3,
    "the float mask is scaled together with the scores",
    wrong="(q k^T + M) scale",
    right="q k^T scale + M",
    visible="finite non-zero float masks alone: boolean and 0/-inf masks hide it",
    remedy="scale q k^T first, then add the mask",
    sources="microsoft/onnxruntime#14976 tenstorrent/tt-metal#42891 facebookresearch/xformers#576",
    needs="attn=float2d/float3d",
)(after("sum_masks", lambda a, masks: masks * a.work_dtype.type(a.scale())))


@register_bug(
    "scale-given-ignored",
    3,
    "the scale given by the caller is ignored",
    wrong="scale = 1/sqrt(head_dim) whatever the caller gives",
    right="scale = the caller's",
    visible="a scale unlike 1/sqrt(head_dim)",
    remedy="use the argument `scale` wherever it is not None",
    sources="pytorch/pytorch#174049 huggingface/transformers#44397 "
    "huggingface/pytorch-image-models#2280",
    needs="scale=given",
)
class GivenIgnored(Attention):
    def scale(self) -> float:
        return float(self.problem.head_dim**-0.5)


@register_bug(
    "scale-given-on-top",
    3,
    "the scale given by the caller is applied on top of the default",
    wrong="scale = given / sqrt(head_dim)",
    right="scale = given, in place of 1/sqrt(head_dim)",
    visible="a scale given by the caller and D > 1",
    remedy="replace the default by the argument; do not multiply by both",
    needs="scale=given",
)
class GivenOnTop(Attention):
    def scale(self) -> float:
        given = self.problem.given_scale
        default = float(self.problem.head_dim**-0.5)
        return default if given is None else given * default


register_bug(
    "scale-v-width",
    3,
    "the scale is taken from the width of the values",
    wrong="scale = 1/sqrt(v_head_dim)",
    right="scale = 1/sqrt(head_dim), the width of q and k",
    visible="value width unlike key width",
    remedy="take the last axis of q, not of v",
    needs=f"{NEEDS} v_dim=other",
)(default_scale(lambda a: a.problem.v_head_dim**-0.5))


@register_bug(
    "scale-off-by-one",
    3,
    "the root is taken of the head width minus one, or plus one",
    wrong="scale = 1/sqrt(head_dim - 1)",
    right=RIGHT,
    visible="always where S > 1",
    remedy=REMEDY,
    needs=NEEDS,
    variants=({"more": 1},),
)
class ScaleOffByOne(_Scaled):
    """1/sqrt(D - 1) or 1/sqrt(D + 1)."""

    more = -1

    def default(self) -> float:
        return float(max(self.problem.head_dim + self.more, 1) ** -0.5)


@register_bug(
    "qk-normalised",
    3,
    "q and k are normalised to length 1 before the product",
    wrong="scores are cosines",
    right="scores are scaled dot products",
    visible="always where S > 1",
    remedy="leave the normalisation of q and k out: torch.nn.MultiheadAttention has none",
    variants=({"unscaled": True},),
)
class Normalised(Attention):
    unscaled = False

    def scores(self, q: Array, k: Array) -> Array:
        q, k = (x / np.sqrt((x * x).sum(axis=-1, keepdims=True)) for x in (q, k))
        return np.asarray(
            super().scores(q, k) / self.work_dtype.type(self.scale() if self.unscaled else 1)
        )
