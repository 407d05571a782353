"""Family 1: projections, their layout and their biases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.plain_attention import Attention, Triple, after
from mha_parity.catalogue.registry import register_bug

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

RIGHT = "x W^T + b with W and b of its own"


class _Renamed(Attention):
    """Reads some parameters under the names of others."""

    renamed: dict[str, str]

    def parameter(self, name: str) -> Array | None:
        packed = self.case.projection == "packed"
        return super().parameter(self.renamed.get(name, name) if packed else name)


@register_bug(
    "qkv-order-qvk",
    1,
    "k and v are exchanged",
    wrong="q, v, k = split(in_proj)",
    right="q, k, v = split(in_proj)",
    visible="always with injected weights; a candidate that trains its own never shows it",
    remedy="give each of q, k and v the weights of its own: packed ones hold q, k, v in this order",
    sources="jsbaan/transformer-from-scratch#1",
    needs="projection=packed/none",
)
class OrderQVK(_Renamed):
    renamed = {"w_k": "w_v", "w_v": "w_k", "b_k": "b_v", "b_v": "b_k"}  # noqa: RUF012  (constant)

    def project(self) -> Triple:
        """Exchange ready K and V as well, where there are no weights to exchange."""
        q, k, v = super().project()
        return (q, v, k) if self.case.projection == "none" else (q, k, v)


@register_bug(
    "qkv-order-kqv",
    1,
    "q and k are exchanged",
    wrong="k, q, v = split(in_proj)",
    right="q, k, v = split(in_proj)",
    visible="unless S = 1; in self-attention without biases the logits are transposed",
    remedy="give each of q, k and v the weights of its own: packed ones hold q, k, v in this order",
    needs="projection=packed",
)
class OrderKQV(_Renamed):
    renamed = {"w_q": "w_k", "w_k": "w_q", "b_q": "b_k", "b_k": "b_q"}  # noqa: RUF012  (constant)


def _with_weights_of(part: str, other: str) -> type[Attention]:
    """Return the attention that projects one of q, k, v with weight and bias of another."""
    renamed = {f"{kind}_{part}": f"{kind}_{other}" for kind in ("w", "b")}
    return type("WithWeightsOf", (_Renamed,), {"renamed": renamed})


for _part, _other in (("k", "q"), ("v", "k"), ("v", "q"), ("q", "k")):
    register_bug(
        f"{_part}-with-weights-of-{_other}",
        1,
        f"{_part} is projected with the weights of {_other}",
        wrong=f"{_part} = x W_{_other}^T + b_{_other}",
        right=f"{_part} = x W_{_part}^T + b_{_part}",
        visible="always with injected weights",
        remedy=f"project {_part} with the weight and the bias of its own",
        needs="projection=packed",
    )(_with_weights_of(_part, _other))


@register_bug(
    "qkv-interleaved-heads",
    1,
    "in_proj is read as one (q, k, v) block per head",
    wrong="in_proj.reshape(H, 3, D, E)",
    right="in_proj.reshape(3, H, D, E)",
    visible="more than one head",
    remedy="reorder the packed weight from (H, 3, D, E) to (3, H, D, E), and its bias likewise",
    sources="awslabs/slapo#46 NVIDIA/apex#1131",
    needs="projection=packed heads=many",
)
class InterleavedHeads(Attention):
    """The packed rows in another order."""

    def parameter(self, name: str) -> Array | None:
        """Take block ``name`` of the packed array as if heads came first."""
        own = super().parameter(name)
        if own is None or name[2:] not in {"q", "k", "v"} or self.case.projection != "packed":
            return own
        parts = [super(InterleavedHeads, self).parameter(f"{name[:2]}{x}") for x in "qkv"]
        packed = np.concatenate([part for part in parts if part is not None])
        heads, width = self.problem.num_heads, self.problem.head_dim
        blocks = packed.reshape(heads, 3, width, *packed.shape[1:])
        return blocks[:, "qkv".index(name[2:])].reshape(own.shape)


@register_bug(
    "w-not-transposed",
    1,
    "q, k and v are projected with their weights transposed",
    wrong="x @ W",
    right="x @ W.T, as torch stores W as (out, in)",
    visible="always; unlike widths crash",
    remedy="apply the weights of q, k and v the other way round: x @ W.T where they are (out, in) "
    "as torch's, x @ W where they are (in, out)",
    sources="skyzh/tiny-llm#41 vllm-project/vllm#44113",
    needs="projection=packed",
    variants=({"turned": ("w_q", "w_k", "w_v", "w_out")},),
)
class NotTransposed(Attention):
    """x W instead of x W^T."""

    turned: tuple[str, ...] = ("w_q", "w_k", "w_v")

    def parameter(self, name: str) -> Array | None:
        array = super().parameter(name)
        return array.T if array is not None and name in self.turned else array


@register_bug(
    "shared-head-projection",
    1,
    "every head uses the projection of head 0 on its own slice of x",
    wrong="x split into H slices, one (D, D) matrix for all",
    right="one (E, E) projection, split after it",
    visible="more than one head",
    remedy="project with the whole (E, E) weight first, then split into heads",
    sources="MarcoMeter/episodic-transformer-memory-ppo#22",
    needs="projection=packed heads=many",
)
class SharedHeadProjection(Attention):
    """One small matrix for all heads."""

    def parameter(self, name: str) -> Array | None:
        """Return a block-diagonal weight made of the first block."""
        array = super().parameter(name)
        if array is None or name not in {"w_q", "w_k", "w_v"} or self.case.projection != "packed":
            return array
        d = self.problem.head_dim
        return np.kron(np.eye(self.problem.num_heads, dtype=self.work_dtype), array[:d, :d])


@register_bug(
    "projection-skipped",
    1,
    "a raw input is used where the projected one was meant",
    wrong="v = value (or q = query, k = key)",
    right=f"v = {RIGHT}",
    visible="always",
    remedy="use the projected q, k and v after the projection, not the arguments of the call",
    sources="Khaliladib11/Transformer-from-scratch#1",
    needs="projection=packed",
    variants=({"raw": "q"}, {"raw": "k"}, {"raw": "qkv"}, {"raw": "qk"}),
)
class ProjectionSkipped(Attention):
    raw = "v"

    def linear(self, x: Array, name: str) -> Array:
        skipped = name in self.raw and self.case.projection == "packed"
        return x if skipped else super().linear(x, name)


register_bug(
    "value-from-key",
    1,
    "v is projected from key instead of value",
    wrong="v = key W_v^T + b_v",
    right="v = value W_v^T + b_v",
    visible="key and value that differ",
    remedy="project v from the third argument",
    needs="inputs=distinct projection=packed",
)(after("inputs", lambda a, rows: (*rows[:2], rows[1 if a.case.projection == "packed" else 2])))


@register_bug(
    "cross-as-self",
    1,
    "k and v are projected from query",
    wrong="k, v from query",
    right="k from key, v from value",
    visible="key and value unlike query",
    remedy="project k and v from the second and third argument",
    needs="inputs=cross/distinct",
    variants=({"both": False},),
)
class CrossAsSelf(Attention):
    """K (and V) from query; keys beyond the queries are cut, as the mask must still fit."""

    both = True

    def inputs(self) -> Triple:
        """Give query in place of key and value, where the shapes let it pass."""
        query, key, value = super().inputs()
        if query.shape != key.shape:
            if self.problem.key_padding_mask is not None or self.problem.attn_mask is not None:
                raise ValueError("masks of S keys do not fit L keys")
            if self.case.projection == "separate":
                raise ValueError("query has not the width of key")
        return query, query, query if self.both else value


@register_bug(
    "kdim-vdim-swapped",
    1,
    "the weights of k and v are given each other's width",
    wrong="W_k is (E, vdim), W_v is (E, kdim)",
    right="W_k is (E, kdim), W_v is (E, vdim)",
    visible="kdim unlike vdim",
    remedy="size W_k by kdim and W_v by vdim",
    sources="pytorch/pytorch#27623",
    needs="projection=separate",
)
class WidthsSwapped(Attention):
    """Buffers of W_k and W_v read in each other's shape."""

    def linear(self, x: Array, name: str) -> Array:
        """Fit the input to the width that was allotted: cut, or filled with zeros."""
        if self.case.projection != "separate" or name not in {"k", "v"}:
            return super().linear(x, name)
        allotted = (self.case.vdim or self.case.embed_dim) if name == "k" else self.case.kdim
        cut = x[..., :allotted]
        return super().linear(np.pad(cut, ((0, 0), (0, 0), (0, x.shape[2] - cut.shape[2]))), name)


@register_bug(
    "out-proj-skipped",
    1,
    "the output projection is left out",
    wrong="output = merged heads",
    right="output = merged heads W_out^T + b_out",
    visible="an output projection that is not the identity",
    remedy="end with x @ out_proj.weight.T + out_proj.bias",
    needs="out_proj=general",
)
class OutProjectionSkipped(Attention):
    def project_output(self, x: Array) -> Array:
        return x


@register_bug(
    "out-proj-transposed",
    1,
    "the output projection multiplies by W where torch multiplies by its transpose",
    wrong="x @ W_out",
    right="x @ W_out.T",
    visible="an output projection that is not symmetric",
    remedy="transpose out_proj.weight",
    needs="out_proj=general",
)
class OutProjectionTransposed(NotTransposed):
    turned = ("w_out",)


@register_bug(
    "single-head",
    1,
    "the number of heads is ignored",
    wrong="one softmax over all E channels, scale 1/sqrt(E)",
    right="one softmax for each of H heads of D channels",
    visible="more than one head",
    remedy="split q, k and v into num_heads heads before the scores",
    sources="feevos/ceecnet#6",
    needs="heads=many",
    variants=({"own_scale": False},),
)
class SingleHead(Attention):
    """Every head sees the logits of all channels: the same as one head."""

    own_scale = True

    def scale(self) -> float:
        """Scale by the whole width, unless the caller gave a scale."""
        default = self.problem.given_scale is None and self.own_scale
        return 1 / self.case.embed_dim**0.5 if default else super().scale()

    def scores(self, q: Array, k: Array) -> Array:
        own = super().scores(q, k)
        return np.asarray(own * 0 + own.sum(axis=1, keepdims=True))
