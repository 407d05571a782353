"""torch.nn.functional.scaled_dot_product_attention on arrays of any leading axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mha_numpy.call import CallOptions, Heads
from mha_numpy.dtypes import BOOL, Array, require_same, to_floating, to_mask, working_dtype
from mha_numpy.engines.dispatch import attend_heads, choose_engine
from mha_numpy.masks import NO_MASK, Masking
from mha_numpy.validation import check_number, check_options, quiet

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    Asked = tuple[ArrayLike | None, bool, float | None, bool, bool]


@quiet
def scaled_dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    rng: np.random.Generator | None = None,
    engine: str = "auto",
    precise: bool = False,
) -> Array:
    """Return softmax(scale * query key^T + mask) value over the last two axes.

    Shapes
        query (..., L, D), key (..., S, D), value (..., S, Dv) -> (..., L, Dv). Leading axes
        broadcast. With `enable_gqa` the last leading axis holds heads, and query head h reads
        key head h // (H // Hkv); key and value may then have unlike numbers of heads, as in torch.

    Mask
        Boolean: True = KEEP (torch's polarity here, the opposite of nn.MultiheadAttention's).
        Float: added to the scaled logits. At least 2-D, and broadcasts to (..., L, S).
        `is_causal`: query i sees key j only if j <= i, counted from the top left; not together
        with attn_mask.

    Parameters
    ----------
    dropout_p : float
        Share of weights set to 0, the others divided by 1 - dropout_p. Always applied.
    scale : float, optional
        1 / sqrt(D) where it is None.
    rng : numpy.random.Generator, optional
        What dropout draws from; needed where `dropout_p` > 0.
    engine, precise
        As in `MultiheadAttention`.

    Raises
    ------
    TypeError
        For arrays that are not all of one dtype among float64, float32, float16, bfloat16, and
        for masks that are neither boolean nor float32 nor of that dtype.
    ValueError
        For shapes that do not fit each other and options out of range.

    Notes
    -----
    Rows that see no key are 0, as in torch 2.13. Unlike torch, a length of value unlike key's
    is refused. float16 and bfloat16 are computed in float32 and rounded once.
    Source: torch.nn.functional.scaled_dot_product_attention, torch 2.13.
    """
    asked = attn_mask, is_causal, scale, enable_gqa, precise
    options = CallOptions(need_weights=False, dropout_p=dropout_p, rng=rng, engine=engine)
    call = check_heads((query, key, value), asked, options)
    out, _ = attend_heads(call.heads, call.engine)
    return out.reshape(*call.lead, *out.shape[-2:]).astype(call.dtype, copy=False)


class HeadsCall(NamedTuple):
    """One call, checked: the arrays as heads in the working dtype, and how the caller had them."""

    heads: Heads
    engine: str
    lead: tuple[int, ...]
    """The leading axes of the result."""
    dtype: np.dtype[Any]


def check_heads(
    inputs: tuple[ArrayLike, ArrayLike, ArrayLike], asked: Asked, options: CallOptions
) -> HeadsCall:
    """Check all arguments, and return the arrays as heads with the engine that takes them."""
    attn_mask, is_causal, scale, enable_gqa, precise = asked
    check_options("dropout_p", options.dropout_p, options.rng, options.engine, drops=True)
    if scale is not None:
        check_number("scale", scale)
    q, k, v = map(to_floating, inputs, ("query", "key", "value"))
    dtype = q.dtype
    require_same(dtype, "the dtype of `query`,", key=k, value=v)
    _check_pair_shapes(q, k, v)
    lead, k, v = grouped_axes(q, k, v) if enable_gqa else (broadcast_axes(q, k, v), k, v)
    shape = (*lead, q.shape[-2], k.shape[-2])
    masking = _masking(attn_mask, is_causal, dtype, shape)
    working = working_dtype(dtype, precise=precise)
    of_keys = (*lead[:-1], k.shape[-3]) if enable_gqa else lead
    pairs = (q, lead), (k, of_keys), (v, of_keys)
    q, k, v = (as_heads(x, axes).astype(working, copy=False) for x, axes in pairs)
    factor = 1 / math.sqrt(q.shape[-1] or 1) if scale is None else float(scale)
    heads = Heads(q, k, v, masking, factor, options)
    return HeadsCall(heads, choose_engine(options, heads.scores), lead, dtype)


def _check_pair_shapes(q: Array, k: Array, v: Array) -> None:
    """Raise unless the last two axes of the three fit each other."""
    for name, array in (("query", q), ("key", k), ("value", v)):
        if array.ndim < 2:
            raise ValueError(
                f"`{name}` has shape {array.shape}, but should be at least 2-D, "
                "(..., length, width); reshape it."
            )
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"`key` has shape {k.shape} and `query` has {q.shape}, but their last axes should "
            "agree; a product of query and key needs one width."
        )
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"`value` has shape {v.shape} and `key` has {k.shape}, but their lengths (axis -2) "
            "should agree; pass one value for each key."
        )


def _masking(
    attn_mask: ArrayLike | None, is_causal: bool, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> Masking:
    """Return the masks of logits of `shape` (..., L, S) as the engines read them."""
    if attn_mask is None:
        return Masking(causal=True) if is_causal else NO_MASK
    if is_causal:
        raise ValueError(
            "`is_causal` is True and `attn_mask` is given, but only one of them can be, as in "
            "torch; merge the causal rule into the mask."
        )
    mask = to_mask(attn_mask, "attn_mask", dtype)
    if mask.ndim < 2 or not broadcasts_to(mask.shape, shape):
        raise ValueError(
            f"`attn_mask` has shape {mask.shape}, but should be at least 2-D and broadcast to "
            f"(..., L, S) = {shape}; reshape it."
        )
    mask = mask_as_heads(mask, shape)
    return Masking(hidden=(~mask,)) if mask.dtype == BOOL else Masking(bias=(mask,))


def broadcast_axes(*arrays: Array, end: int = -2) -> tuple[int, ...]:
    """Return what the axes before `end` broadcast to."""
    shapes = [array.shape[:end] for array in arrays]
    if shapes[0] == shapes[1] == shapes[2]:
        return shapes[0]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(
            f"`query`, `key` and `value` have leading axes {shapes[0]}, {shapes[1]} and "
            f"{shapes[2]}, but they should broadcast; pass enable_gqa=True for fewer key heads."
        ) from None


def grouped_axes(q: Array, k: Array, v: Array) -> tuple[tuple[int, ...], Array, Array]:
    """Return query's leading axes, and key and value with one number of heads."""
    if min(q.ndim, k.ndim, v.ndim) < 3:
        raise ValueError(
            f"`query`, `key` and `value` have shapes {q.shape}, {k.shape} and {v.shape}, but "
            "`enable_gqa` needs an axis of heads, (..., H, length, width); reshape them."
        )
    heads, k_heads, v_heads = q.shape[-3], k.shape[-3], v.shape[-3]
    if not k_heads or not v_heads or heads % k_heads or heads % v_heads:
        raise ValueError(
            f"`key` and `value` have {k_heads} and {v_heads} heads, but each number should divide "
            f"the {heads} heads of `query`; head h of query reads head h // (H // Hkv)."
        )
    outer = broadcast_axes(q, k, v, end=-3)
    if k_heads != v_heads:
        k, v = np.repeat(k, heads // k_heads, -3), np.repeat(v, heads // v_heads, -3)
    return (*outer, heads), k, v


def as_heads(array: Array, lead: tuple[int, ...]) -> Array:
    """Return (N, H, length, width), broadcast to the leading axes, H the last of them."""
    if array.ndim == 4 and array.shape[:-2] == lead:
        return array
    full = np.broadcast_to(array, (*lead, *array.shape[-2:]))
    heads = lead[-1] if lead else 1
    return full.reshape(math.prod(lead[:-1]), heads, *array.shape[-2:])


def broadcasts_to(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether `shape` broadcasts to `wanted` without widening it."""
    pairs = zip(shape[::-1], wanted[::-1], strict=False)
    return len(shape) <= len(wanted) and all(size in {1, full} for size, full in pairs)


def mask_as_heads(mask: Array, shape: tuple[int, ...]) -> Array:
    """Return a mask that broadcasts to (..., H, L, S) as one that broadcasts to (N, H, L, S)."""
    tail = (1, 1, *mask.shape)[-3:]
    if math.prod(mask.shape[:-3]) == 1:
        return mask.reshape(1, *tail)
    if len(shape) == 4:
        return mask
    full = np.broadcast_to(mask, (*shape[:-3], *tail))
    return full.reshape(math.prod(shape[:-3]), *tail)
