"""A problem: the arrays and options of one attention call, in torch's terms and one fixed layout.

Whatever layout a case asks for, a problem holds batch-first arrays; the conventions turn them into
what a candidate is called with. With x the rows of query, key or value,

    q = x W_q^T + b_q,  k = x W_k^T + b_k,  v = x W_v^T + b_v      (no W: the inputs themselves)
    P = softmax(scale q k^T + masks),  heads = P v,  output = merge(heads) W_out^T + b_out
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core import head_projections

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case

INPUTS = ("query", "key", "value")
WEIGHTS = ("w_q", "w_k", "w_v", "b_q", "b_k", "b_v", "bias_k", "bias_v", "w_out", "b_out")


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """Arrays in the case's dtype; shapes batch first: query (N, L, E), key (N, S, kdim), ...

    ``single_call``: asked for by no case, so that no check makes further calls of it.
    ``query is key`` (and ``value``) in self-attention; ``key is value`` where the case says cross.
    Weights are as torch stores them, (out, in). Masks have torch.nn.MultiheadAttention's polarity:
    True = hidden; ``attn_mask`` is (L, S) or (N * H, L, S); causal is not in ``attn_mask``.
    """

    case: Case
    query: Array
    key: Array
    value: Array
    w_q: Array | None = None
    w_k: Array | None = None
    w_v: Array | None = None
    b_q: Array | None = None
    b_k: Array | None = None
    b_v: Array | None = None
    bias_k: Array | None = None
    bias_v: Array | None = None
    w_out: Array | None = None
    b_out: Array | None = None
    key_padding_mask: Array | None = None
    attn_mask: Array | None = None
    given_scale: float | None = None
    single_call: bool = False

    def replace(self, **changes: object) -> Problem:
        """Return the problem with some fields changed; weights as its heads can hold them."""
        changed = dataclasses.replace(self, **changes)  # type: ignore[arg-type]  # fields vary in type
        if changed.case.projection not in head_projections.PROJECTIONS:
            return changed
        held = {name: getattr(changed, name) for name in head_projections.ARRAYS & changes.keys()}
        held = {name: array for name, array in held.items() if array is not None}
        own: dict[str, Any] = head_projections.restricted(changed.case, held)
        return dataclasses.replace(changed, **own)

    @property
    def num_heads(self) -> int:
        """H, the query heads."""
        return self.case.heads_count

    @property
    def num_kv_heads(self) -> int:
        """How many heads key and value have; H unless projected queries are grouped.

        In a whole layer the weights hold a key head for each query head, grouped ones repeated.
        """
        grouped = self.case.form == "qkv" and self.case.kv_heads_count
        return grouped or self.case.heads_count

    @property
    def head_dim(self) -> int:
        """D, the width of a query and key head."""
        return self.case.head_dim

    @property
    def v_head_dim(self) -> int:
        """The width of a value head; D unless the case says otherwise."""
        return self.case.v_head_dim or self.case.head_dim

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The dtype of all float arrays of the problem."""
        return self.query.dtype

    @property
    def is_causal(self) -> bool:
        """Query i sees keys j <= i (top-left), besides whatever the masks hide."""
        return self.case.attn == "causal"

    @property
    def add_zero_attn(self) -> bool:
        """A key and a value of zeros are appended after the projection."""
        return self.case.zero_attn == "yes"

    @property
    def scale(self) -> float:
        """The factor on q k^T: 1/sqrt(D), or the caller's."""
        return 1 / math.sqrt(self.head_dim) if self.given_scale is None else self.given_scale

    @property
    def appended(self) -> int:
        """How many keys bias_kv and zero_attn add behind the last one."""
        return int(self.bias_k is not None) + int(self.add_zero_attn)

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """(N, L, H Dv), the canonical shape of the answer."""
        return (self.case.batch, self.case.queries, self.num_heads * self.v_head_dim)

    @property
    def weights_shape(self) -> tuple[int, int, int, int]:
        """(N, H, L, S + appended), the canonical shape of the weights of every head."""
        case = self.case
        return (case.batch, case.heads_count, case.queries, self.key.shape[1] + self.appended)

    @property
    def lengths(self) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
        """Valid lengths (N,) where the padding is a suffix given as lengths, else None."""
        if self.case.padding != "lengths" or self.key_padding_mask is None:
            return None
        return np.asarray((~self.key_padding_mask.astype(bool)).sum(axis=1), dtype=np.int64)

    def state(self) -> dict[str, Array]:
        """Return the weights under torch.nn.MultiheadAttention's state-dict names and shapes.

        ``out_proj`` is left out where it is the identity.
        """
        state: dict[str, Array] = {}
        if self.w_q is None or self.w_k is None or self.w_v is None:
            return state
        if self.case.projection == "separate":
            names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
            state |= dict(zip(names, (self.w_q, self.w_k, self.w_v), strict=True))
        else:
            state["in_proj_weight"] = np.concatenate((self.w_q, self.w_k, self.w_v))
        if self.b_q is not None and self.b_k is not None and self.b_v is not None:
            state["in_proj_bias"] = np.concatenate((self.b_q, self.b_k, self.b_v))
        if self.bias_k is not None and self.bias_v is not None:
            state |= {"bias_k": self.bias_k[None, None], "bias_v": self.bias_v[None, None]}
        if self.w_out is not None:
            state["out_proj.weight"] = self.w_out
        if self.b_out is not None:
            state["out_proj.bias"] = self.b_out
        return state

    def hidden(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Return which keys are hidden, (N, H, L, S + appended); appended keys never are."""
        n, h, length, total = self.weights_shape
        hidden = np.zeros((n, h, length, total), dtype=bool)
        own = hidden[..., : total - self.appended]
        if self.key_padding_mask is not None:
            own |= _hides(self.key_padding_mask)[:, None, None, :]
        if self.attn_mask is not None:
            own |= _per_head(_hides(self.attn_mask), n, h)
        if self.is_causal:
            own |= np.triu(np.ones(own.shape[-2:], dtype=bool), k=1)
        return hidden

    def additive(self) -> Array:
        """Return the sum of the finite float masks in float64, (N, H, L, S + appended)."""
        n, h, length, total = self.weights_shape
        bias = np.zeros((n, h, length, total))
        own = bias[..., : total - self.appended]
        if self.key_padding_mask is not None:
            own += _finite(self.key_padding_mask)[:, None, None, :]
        if self.attn_mask is not None:
            own += _per_head(_finite(self.attn_mask), n, h)
        return bias

    def mask_sums(self, scores: Array) -> dict[str, Array]:
        """Return the sums of an array over all scores for each float mask, in its own shape.

        ``scores`` is (N, H, L, S), or has axes of one over which no mask varies.
        """
        sums: dict[str, Array] = {}
        attn, padding = self.attn_mask, self.key_padding_mask
        if attn is not None and attn.dtype != np.bool_:
            flat = attn.ndim == 2
            sums["attn_mask"] = scores.sum(axis=(0, 1)) if flat else scores.reshape(attn.shape)
        if padding is not None and padding.dtype != np.bool_:
            sums["key_padding_mask"] = scores.sum(axis=(1, 2))
        return sums

    def sum_shared_heads(self, name: str, gradient: Array) -> Array:
        """Return an in-projection's gradient, that of a shared key head at the first to share it.

        A layer has one array for the heads that share it, whose gradient is the sum of theirs.
        """
        case = self.case
        if case.projection in head_projections.PROJECTIONS and name.startswith("in_proj"):
            return head_projections.gradient_sums(case, gradient)
        if case.kv_heads == "equal" or case.form != "mha" or not name.startswith("in_proj"):
            return gradient
        parts = gradient.reshape(3, case.kv_heads_count, -1, case.head_dim, *gradient.shape[1:])
        summed = np.zeros_like(parts)
        summed[0], summed[1:, :, 0] = parts[0], parts[1:].sum(axis=2)
        return summed.reshape(gradient.shape)

    def masked_rows(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Return which queries see no key at all, (N, H, L)."""
        if self.key_padding_mask is None and self.attn_mask is None:  # causal leaves key 0
            return np.zeros(self.weights_shape[:-1], dtype=bool)
        return np.asarray(self.hidden().all(axis=-1) & (self.weights_shape[-1] > 0))


def _hides(mask: Array) -> Array:
    return mask if mask.dtype == np.bool_ else mask.astype(np.float64) == -np.inf


def _finite(mask: Array) -> Array:
    if mask.dtype == np.bool_:
        return np.zeros(mask.shape)
    mask64 = mask.astype(np.float64)
    return np.where(mask64 == -np.inf, 0.0, mask64)


def _per_head(mask: Array, n: int, h: int) -> Array:
    return mask if mask.ndim == 2 else mask.reshape(n, h, *mask.shape[1:])
