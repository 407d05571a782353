"""Family 7: the keys that bias_kv and zero_attn append."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.plain_attention import Attention, append_row
from mha_parity.catalogue.registry import register_bug

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array


@register_bug(
    "biaskv-prepended",
    7,
    "bias_k and bias_v are put before the first key",
    wrong="cat(bias_k, k)",
    right="cat(k, bias_k)",
    visible="in the columns of the weights alone, as masks go with their keys",
    remedy="append bias_k and bias_v behind the last key",
    needs="bias_kv=yes weights=averaged/per_head",
    aliases="(right)",
)
class Prepended(Attention):
    """The same sum in another order; the weights show the order."""

    def returned_weights(self, weights: Array) -> Array:
        if self.problem.bias_k is None:
            return weights
        own = self.problem.key.shape[1]
        order = [own, *range(own), *range(own + 1, weights.shape[-1])]
        return super().returned_weights(weights[..., order])


@register_bug(
    "biaskv-prepended-mask",
    7,
    "bias_k and bias_v are put first while the mask is widened at the end",
    wrong="cat(bias_k, k) with mask columns (k_1 ... k_S, seen)",
    right="cat(k, bias_k)",
    visible="bias_kv with any mask",
    remedy="append bias_k and bias_v behind the last key, and a column of 0 to the mask",
    needs="bias_kv=yes",
)
class PrependedMask(Attention):
    def apply_mask(self, scores: Array, mask: Array) -> Array:
        if self.problem.bias_k is None:
            return super().apply_mask(scores, mask)
        own = self.problem.key.shape[1]
        order = [*range(1, own + 1), 0, *range(own + 1, mask.shape[-1])]
        return super().apply_mask(scores, mask[..., order])


@register_bug(
    "biaskv-before-projection",
    7,
    "bias_k and bias_v are appended before the projection",
    wrong="k = cat(key, bias_k) W_k^T + b_k",
    right="k = cat(key W_k^T + b_k, bias_k)",
    visible="add_bias_kv",
    remedy="append bias_k and bias_v after the projection",
    needs="bias_kv=yes",
)
class BeforeProjection(Attention):
    def parameter(self, name: str) -> Array | None:
        """Project the rows of bias_kv, where their width allows it."""
        own = super().parameter(name)
        if own is None or name not in {"bias_k", "bias_v"}:
            return own
        return self.linear(own, name[-1])


@register_bug(
    "biaskv-gets-inproj-bias",
    7,
    "in_proj_bias is added to bias_k and bias_v",
    wrong="bias_k + b_k, bias_v + b_v",
    right="bias_k, bias_v",
    visible="add_bias_kv with non-zero in_proj_bias: torch initialises it to 0",
    remedy="append bias_k and bias_v after the bias was added",
    needs="bias_kv=yes bias=yes",
)
class GetsBias(Attention):
    """The bias added after appending."""

    def parameter(self, name: str) -> Array | None:
        own = super().parameter(name)
        bias = super().parameter(f"b_{name[-1]}") if name in {"bias_k", "bias_v"} else None
        return own if own is None or bias is None else own + bias


@register_bug(
    "biaskv-swapped",
    7,
    "bias_k is appended to v and bias_v to k",
    wrong="cat(k, bias_v), cat(v, bias_k)",
    right="cat(k, bias_k), cat(v, bias_v)",
    visible="add_bias_kv",
    remedy="append bias_k to k and bias_v to v",
    needs="bias_kv=yes",
)
class Swapped(Attention):
    def parameter(self, name: str) -> Array | None:
        return super().parameter({"bias_k": "bias_v", "bias_v": "bias_k"}.get(name, name))


@register_bug(
    "biaskv-ignored",
    7,
    "bias_k and bias_v have no effect",
    wrong="S keys",
    right="S + 1 keys, the last one bias_k",
    visible="add_bias_kv",
    remedy="append bias_k to k and bias_v to v after the projection",
    needs="bias_kv=yes",
)
class BiasKvIgnored(Attention):
    """The appended key hidden; its column stays, at 0."""

    def mask_scores(self, scores: Array) -> Array:
        masked = super().mask_scores(scores).copy()
        if self.problem.bias_k is not None:
            masked[..., self.problem.key.shape[1]] = -np.inf
        return masked


@register_bug(
    "zeroattn-ignored",
    7,
    "add_zero_attn has no effect",
    wrong="S keys",
    right="S + 1 keys, the last one zero",
    visible="add_zero_attn",
    remedy="append a key and a value of zeros after the projection",
    needs="zero_attn=yes",
)
class ZeroIgnored(Attention):
    """The zero key hidden; its column stays, at 0."""

    def mask_scores(self, scores: Array) -> Array:
        masked = super().mask_scores(scores).copy()
        if self.problem.add_zero_attn:
            masked[..., -1] = -np.inf
        return masked


@register_bug(
    "zeroattn-raw-space",
    7,
    "the zero row is appended before the projection",
    wrong="cat(key, 0) W_k^T + b_k: the zero key becomes b_k",
    right="cat(key W_k^T + b_k, 0)",
    visible="add_zero_attn with non-zero in_proj_bias: torch initialises it to 0",
    remedy="append the zeros after projection and bias",
    needs="zero_attn=yes bias=yes",
)
class RawSpace(Attention):
    """A zero row that gets the bias."""

    def append(self, k: Array, v: Array) -> tuple[Array, Array]:
        k, v = super().append(k, v)
        b_k, b_v = self.parameter("b_k"), self.parameter("b_v")
        if not self.problem.add_zero_attn or b_k is None or b_v is None:
            return k, v
        return append_row(k[:, :-1], b_k), append_row(v[:, :-1], b_v)


@register_bug(
    "zeroattn-mask-pad",
    7,
    "the mask hides the appended key",
    wrong="the mask is widened by: hidden",
    right="the mask is widened by: seen",
    visible="bias_kv or zero_attn together with a mask",
    remedy="widen attn_mask and key_padding_mask by a column of 0 (False)",
    sources="pytorch/pytorch#27461",
    needs="zero_attn=yes bias_kv=yes",
)
class MaskPad(Attention):
    """The appended keys hidden wherever there is a mask."""

    def broadcast_mask(self, mask: Array) -> Array:
        """Pad with -inf."""
        wider = super().broadcast_mask(mask).copy()
        wider[..., self.problem.key.shape[1] :] = -np.inf
        return wider


@register_bug(
    "appended-key-causal",
    7,
    "the causal rule hides the appended key from early queries",
    wrong="triu over (L, S + 1)",
    right="triu over (L, S), and a column of 0 behind it",
    visible="bias_kv or zero_attn with the causal rule",
    remedy="build the causal mask for S keys, then widen it",
    needs="zero_attn=yes bias_kv=yes attn=causal",
)
class AppendedCausal(Attention):
    """The rule on all S' keys."""

    def broadcast_mask(self, mask: Array) -> Array:
        wider = super().broadcast_mask(mask)
        if not self.problem.is_causal:
            return wider
        return np.where(np.triu(np.ones(wider.shape[-2:], dtype=bool), k=1), -np.inf, wider)
