"""Family 1, second part: biases of the projections."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.plain_attention import Attention
from mha_parity.catalogue.registry import register_bug

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array


@register_bug(
    "qv-bias-dropped",
    1,
    "a bias of q, k or v is left out",
    wrong="x W^T for q, for v or for all three",
    right="x W^T + b",
    visible="non-zero in_proj_bias alone: torch initialises it to 0",
    remedy="add the biases of the projections to q, k and v",
    sources="shadowpa0327/Palu#8",
    needs="bias=yes",
    variants=({"dropped": ("b_q",)}, {"dropped": ("b_v",)}, {"dropped": ("b_q", "b_k")}),
)
class BiasDropped(Attention):
    dropped: tuple[str, ...] = ("b_q", "b_k", "b_v")

    def parameter(self, name: str) -> Array | None:
        return None if name in self.dropped else super().parameter(name)


@register_bug(
    "k-bias-dropped",
    1,
    "the bias of k is left out",
    wrong="k = x W_k^T",
    right="k = x W_k^T + b_k",
    visible="with bias_kv or zero_attn alone, or as a missing gradient of b_k",
    remedy="add the bias of its projection to k",
    sources="microsoft/unilm#510",
    needs="bias=yes bias_kv=yes",
    aliases="(right)",
)
class KeyBiasDropped(BiasDropped):
    """q . b_k is the same for every key: the softmax forgets it, unless a key is appended."""

    dropped = ("b_k",)


@register_bug(
    "bias-wrong-index",
    1,
    "the bias is added after the split, by the index it had before",
    wrong="heads.ravel()[i] += b[i % E] on (N, H, L, D)",
    right="b is added to (N, L, E) before the split",
    visible="more than one head and non-zero bias",
    remedy="add the bias before the head transpose, or as b.reshape(H, 1, D) after it",
    sources="NVIDIA/DeepLearningExamples#664",
    needs="bias=yes heads=many",
)
class BiasWrongIndex(BiasDropped):
    def split(self, x: Array, heads: int) -> Array:
        """Add the bias of the next projection in line along the flat buffer."""
        split = np.ascontiguousarray(super().split(x, heads))
        self.calls = getattr(self, "calls", -1) + 1
        bias = Attention.parameter(self, f"b_{'qkv'[self.calls % 3]}")
        return split if bias is None else split + np.resize(bias, split.size).reshape(split.shape)


@register_bug(
    "q-bias-unscaled",
    1,
    "the scale reaches q before its bias does",
    wrong="q = scale x W_q^T + b_q",
    right="q = scale (x W_q^T + b_q)",
    visible="non-zero bias of q and D > 1",
    remedy="scale q after its bias was added",
    needs="bias=yes",
)
class QueryBiasUnscaled(Attention):
    """The bias of q is not scaled."""

    def parameter(self, name: str) -> Array | None:
        array = super().parameter(name)
        undo = name == "b_q" and array is not None
        return array / self.work_dtype.type(self.scale()) if undo and array is not None else array


@register_bug(
    "out-bias-kept",
    1,
    "an offset is added to every output though the layer has no bias",
    wrong="output + c, the same c for every token",
    right="output = heads W_out^T when bias=False",
    visible="bias=False and a bias vector that is not zero",
    remedy="leave the bias of the output projection out when bias=False",
    sources="pytorch/pytorch#52257",
    needs="bias=no form=mha",
)
class OutBiasKept(Attention):
    """A constant bias: 1/sqrt(E), the bound of a linear layer's initial bias."""

    def project_output(self, x: Array) -> Array:
        """Add the offset where the layer has no biases."""
        kept = self.case.form == "mha" and self.case.bias == "no"
        offset = self.work_dtype.type(1 / max(self.case.embed_dim, 1) ** 0.5) if kept else 0
        return super().project_output(x) + offset


@register_bug(
    "out-bias-dropped",
    1,
    "the bias of the output projection is left out",
    wrong="x @ W_out.T",
    right="x @ W_out.T + b_out",
    visible="non-zero out_proj.bias: torch initialises it to 0",
    remedy="add out_proj.bias at the end",
    needs="out_proj=general bias=yes",
)
class OutBiasDropped(BiasDropped):
    dropped = ("b_out",)
