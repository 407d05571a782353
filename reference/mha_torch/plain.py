"""The second oracle: multi-head attention in NumPy alone, written without a look at torch's code.

It shares nothing with the first oracle, nor with the implementation that is judged. It computes in
float64 or in the platform's long double (80 bits on x86), and shows every stage of the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping

Array: TypeAlias = NDArray[Any]
Float: TypeAlias = "type[np.float64 | np.longdouble]"
FullyMasked: TypeAlias = Literal["nan", "zero"]

_PER_HEAD = 3  # axes of a mask with one matrix for each sample and head


@dataclass(frozen=True, slots=True)
class Stages:
    """Every stage of one attention, in the order of computation.

    S' counts the appended keys (bias_k first, then the zero key) too.
    """

    q: Array
    """(N, H, L, D): projected queries, not yet scaled."""
    k: Array
    """(N, H, S', D): projected keys with the appended ones."""
    v: Array
    """(N, H, S', D): projected values with the appended ones."""
    logits: Array
    """(N, H, L, S'): scaled scores with the masks added."""
    weights: Array
    """(N, H, L, S'): softmax of the logits over the keys."""
    heads: Array
    """(N, H, L, D): weights times values."""
    merged: Array
    """(N, L, E): the heads side by side, head 0 first."""
    output: Array
    """(N, L, E): after the output projection."""


def stages(
    query: Array,
    key: Array,
    value: Array,
    state: Mapping[str, Array],
    *,
    num_heads: int,
    add_zero_attn: bool = False,
    key_padding_mask: Array | None = None,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    dtype: Float = np.float64,
) -> Stages:
    """Return every stage of multi-head attention; `output` and `weights` are its results.

    Arguments as in `mha_torch.multihead_attention`; `is_causal` with an `attn_mask` is a mere
    hint, as on torch's pinned path. Fully masked rows are NaN, as there.
    """
    weights_in, biases_in = in_projection(state, query.shape[-1], dtype)
    q, k, v = (
        _projected(inputs, weight, bias, dtype)
        for inputs, weight, bias in zip((query, key, value), weights_in, biases_in, strict=True)
    )
    k, v = _with_bias_kv(k, v, state, dtype)
    q, k, v = (split_heads(rows, num_heads) for rows in (q, k, v))
    if add_zero_attn:
        k, v = _with_zero_key(k), _with_zero_key(v)
    if is_causal and attn_mask is None:
        attn_mask = causal_mask(query.shape[1], key.shape[1])
    extra = k.shape[2] - key.shape[1]
    mask = _added(attn_mask, key_padding_mask, num_heads, extra, dtype)
    logits = _scores(q, k, 1 / np.sqrt(dtype(q.shape[-1]))) + mask
    weights = softmax(logits)
    heads = np.matmul(weights, v)
    merged = heads.swapaxes(1, 2).reshape(query.shape)
    return Stages(q, k, v, logits, weights, heads, merged, _out(merged, state, dtype))


def sdpa_stages(
    query: Array,
    key: Array,
    value: Array,
    *,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    fully_masked: FullyMasked = "zero",
    dtype: Float = np.float64,
) -> Stages:
    """Return the stages of scaled dot-product attention, (..., H, ...) each; nothing is merged.

    Arguments as in `mha_torch.scaled_dot_product_attention`; a boolean mask keeps where it is
    True. Rows that see no key are 0 as in torch, or NaN with `fully_masked="nan"`. With
    `enable_gqa` the keys and values are those of every query head.
    """
    q, k, v = (np.asarray(rows).astype(dtype) for rows in (query, key, value))
    if enable_gqa:
        k, v = (np.repeat(rows, q.shape[-3] // rows.shape[-3], axis=-3) for rows in (k, v))
    factor = 1 / np.sqrt(dtype(q.shape[-1])) if scale is None else dtype(scale)
    logits = _scores(q, k, factor)
    if is_causal:
        logits = logits + additive(causal_mask(q.shape[-2], k.shape[-2]), dtype)
    if attn_mask is not None:
        hidden = ~attn_mask if attn_mask.dtype == np.bool_ else attn_mask
        logits = logits + additive(hidden, dtype)
    weights = softmax(logits)
    if fully_masked == "zero":
        nothing_seen = np.all(np.isneginf(logits), axis=-1, keepdims=True)
        weights = np.where(nothing_seen, dtype(0), weights)
    heads = np.matmul(weights, v)
    return Stages(q, k, v, logits, weights, heads, heads, heads)


def softmax(logits: Array) -> Array:
    """Return the softmax over the last axis; rows of -inf, and rows holding NaN, are NaN."""
    if logits.shape[-1] == 0:
        return logits
    with np.errstate(invalid="ignore", under="ignore"):
        shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def causal_mask(queries: int, keys: int) -> Array:
    """Return the top-left mask (L, S): True hides key j from query i where j > i."""
    return np.arange(keys)[None, :] > np.arange(queries)[:, None]


def additive(mask: Array, dtype: Float) -> Array:
    """Return the mask as numbers to add: True becomes -inf, floats stay."""
    if mask.dtype == np.bool_:
        return np.where(mask, dtype("-inf"), dtype(0))
    return mask.astype(dtype)


def in_projection(
    state: Mapping[str, Array], width: int, dtype: Float
) -> tuple[list[Array | None], list[Array | None]]:
    """Return three weights and three biases; None where the problem has none."""
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    weights: list[Array | None] = [state.get(name) for name in names]
    if "in_proj_weight" in state:
        packed = state["in_proj_weight"]
        weights = [packed[i * width : (i + 1) * width] for i in range(3)]
    biases: list[Array | None] = [None] * 3
    if "in_proj_bias" in state:
        biases = [state["in_proj_bias"][i * width : (i + 1) * width] for i in range(3)]
    return [_cast(w, dtype) for w in weights], [_cast(b, dtype) for b in biases]


def _cast(array: Array | None, dtype: Float) -> Array | None:
    return None if array is None else np.asarray(array).astype(dtype)


def _projected(inputs: Array, weight: Array | None, bias: Array | None, dtype: Float) -> Array:
    """Return inputs @ weight.T + bias; what is None is left out."""
    rows: Array = np.asarray(inputs).astype(dtype)
    if weight is not None:
        rows = np.dot(rows, weight.T)  # of long doubles a third of the time of matmul
    return rows if bias is None else rows + bias


def _out(merged: Array, state: Mapping[str, Array], dtype: Float) -> Array:
    weight = _cast(state.get("out_proj.weight"), dtype)
    return _projected(merged, weight, _cast(state.get("out_proj.bias"), dtype), dtype)


def _with_bias_kv(
    k: Array, v: Array, state: Mapping[str, Array], dtype: Float
) -> tuple[Array, Array]:
    """Append bias_k and bias_v as one more key of every sample; they are not projected."""
    if "bias_k" not in state:
        return k, v
    shape = (k.shape[0], 1, k.shape[2])
    extra = (np.broadcast_to(state[name].astype(dtype), shape) for name in ("bias_k", "bias_v"))
    appended_k, appended_v = extra
    return np.concatenate([k, appended_k], axis=1), np.concatenate([v, appended_v], axis=1)


def _with_zero_key(heads: Array) -> Array:
    """Append one row of zeros to the keys (or values) of every head."""
    samples, count, _, width = heads.shape
    zeros = np.zeros((samples, count, 1, width), heads.dtype)
    return np.concatenate([heads, zeros], axis=2)


def split_heads(rows: Array, num_heads: int) -> Array:
    """Turn (N, S, E) into (N, H, S, D): head h owns the features h * D up to (h + 1) * D."""
    samples, length, width = rows.shape
    return rows.reshape(samples, length, num_heads, width // num_heads).swapaxes(1, 2)


def _scores(q: Array, k: Array, factor: np.floating[Any]) -> Array:
    return np.asarray(np.matmul(q * factor, k.swapaxes(-1, -2)))


def _added(
    attn_mask: Array | None,
    key_padding_mask: Array | None,
    num_heads: int,
    extra: int,
    dtype: Float,
) -> Array:
    """Return what the masks add to the logits (N or 1, H or 1, L or 1, S'); 0 for appended keys."""
    parts = []
    if attn_mask is not None:
        added = additive(np.asarray(attn_mask), dtype)
        heads = num_heads if added.ndim == _PER_HEAD else 1
        samples = len(added) // heads if added.ndim == _PER_HEAD else 1
        parts.append(added.reshape(samples, heads, *added.shape[-2:]))
    if key_padding_mask is not None:
        parts.append(additive(np.asarray(key_padding_mask), dtype)[:, None, None, :])
    if not parts:
        return np.zeros((1, 1, 1, 1), dtype)
    whole = np.asarray(sum(parts))
    return np.pad(whole, [(0, 0), (0, 0), (0, 0), (0, extra)]) if extra else whole
