"""Leading axes of scaled_dot_product_attention: any number of them, as samples and heads.

Private to the package.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def broadcast_axes(*arrays: NDArray[Any], end: int = -2) -> tuple[int, ...]:
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


def grouped_axes(
    q: NDArray[Any], k: NDArray[Any], v: NDArray[Any]
) -> tuple[tuple[int, ...], NDArray[Any], NDArray[Any]]:
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


def as_heads(array: NDArray[Any], lead: tuple[int, ...], *, grouped: bool = False) -> NDArray[Any]:
    """Return (N, H, length, width), H the last leading axis (its own where grouped)."""
    if grouped:
        lead = (*lead[:-1], array.shape[-3])
    if array.ndim == 4 and array.shape[:-2] == lead:
        return array
    full = np.broadcast_to(array, (*lead, *array.shape[-2:]))
    heads = lead[-1] if lead else 1
    outer = math.prod(lead[:-1])
    return full.reshape(outer, heads, *array.shape[-2:])


def broadcasts_to(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether `shape` broadcasts to `wanted` without widening it."""
    pairs = zip(shape[::-1], wanted[::-1], strict=False)
    return len(shape) <= len(wanted) and all(size in {1, full} for size, full in pairs)


def mask_as_heads(mask: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a mask that broadcasts to (..., H, L, S) as one that broadcasts to (N, H, L, S)."""
    tail = (1, 1, *mask.shape)[-3:]
    if math.prod(mask.shape[:-3]) == 1:
        return mask.reshape(1, *tail)
    if len(shape) == 4:
        return mask
    full = np.broadcast_to(mask, (*shape[:-3], *tail))
    return full.reshape(-1, *tail)
