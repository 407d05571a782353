"""Wrong on purpose, as kernels are written: f(query, key, value, attn_mask, is_causal, ...)."""

from __future__ import annotations

import numpy as np

EXPECTED = {
    "inverted_mask": "bool-inverted",
    "bottom_right": "causal-bottom-right",
    "mask_scaled": "scale-includes-mask",
    "no_rescale": "online-no-rescale",
    "zero_filler": "tail-block-zero-keys",
    "minus_ten": "mask-minus-10",
    "blanked_after": "mask-after-softmax",
    "blanked_scores": "mask-as-zero-logit",
    "half_inside": "low-precision-softmax",
    "single_inside": "f64-capped-at-f32",
    "short_exp": "exp-approximated",
    "wrong_neighbour": "samples-mixed",
    "ignores_scale": "scale-given-ignored",
    "strictly_causal": "causal-strict",
}


def normal(z):
    with np.errstate(invalid="ignore"):
        e = np.exp(z - z.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)


def bias(mask, dtype, hidden=-np.inf):
    if mask is None:
        return 0
    return np.where(mask, 0, hidden).astype(dtype) if mask.dtype == bool else mask


def triangle(query, key, offset=0):
    shape = query.shape[-2], key.shape[-2]
    return np.tril(np.ones(shape, dtype=bool), k=offset)


def raw(query, key, scale):
    factor = query.dtype.type(query.shape[-1] ** -0.5 if scale is None else scale)
    return factor * query @ np.moveaxis(key, -1, -2)


def inverted_mask(query, key, value, attn_mask=None, is_causal=False, scale=None):
    z = raw(query, key, scale)
    if is_causal:
        z = np.where(triangle(query, key), z, -np.inf)
    if attn_mask is not None:
        z = np.where(attn_mask, -np.inf, z) if attn_mask.dtype == bool else z + attn_mask
    return normal(z).astype(query.dtype) @ value


def bottom_right(query, key, value, attn_mask=None, is_causal=False, scale=None):
    z = raw(query, key, scale) + bias(attn_mask, query.dtype)
    if is_causal:
        z[..., ~triangle(query, key, key.shape[-2] - query.shape[-2])] = -np.inf
    return normal(z) @ value


def strictly_causal(query, key, value, attn_mask=None, is_causal=False, scale=None):
    z = raw(query, key, scale) + bias(attn_mask, query.dtype)
    if is_causal:
        z[..., ~triangle(query, key, -1)] = -np.inf
    return normal(z) @ value


def mask_scaled(query, key, value, attn_mask=None, is_causal=False, scale=None):
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    z = query @ np.moveaxis(key, -1, -2) + bias(attn_mask, query.dtype)
    z = z * query.dtype.type(scale)
    if is_causal:
        z[..., ~triangle(query, key)] = -np.inf
    return normal(z) @ value


def tiles(query, key, value, scale, block, rescale=True):
    """One pass over blocks of keys with running maximum, sum and accumulator."""
    m = np.full((*query.shape[:-1], 1), -np.inf, dtype=query.dtype)
    total = np.zeros_like(m)
    acc = np.zeros((*query.shape[:-1], value.shape[-1]), dtype=query.dtype)
    for start in range(0, key.shape[-2], block):
        z = raw(query, key[..., start : start + block, :], scale)
        new = np.maximum(m, z.max(-1, keepdims=True))
        e = np.exp(z - new)
        factor = np.exp(m - new)
        total = total * factor + e.sum(-1, keepdims=True)
        acc = acc * (factor if rescale else 1) + e @ value[..., start : start + block, :]
        m = new
    return acc / total


def no_rescale(query, key, value, scale=None):
    return tiles(query, key, value, scale, 4, rescale=False)


def zero_filler(query, key, value, scale=None):
    extra = -key.shape[-2] % 16
    room = [(0, 0)] * (key.ndim - 2) + [(0, extra), (0, 0)]
    return tiles(query, np.pad(key, room), np.pad(value, room), scale, 16)


def minus_ten(query, key, value, attn_mask=None, is_causal=False, scale=None):
    z = raw(query, key, scale)
    if is_causal:
        z = np.where(triangle(query, key), z, z.dtype.type(-10))
    if attn_mask is not None:
        keep = attn_mask if attn_mask.dtype == bool else attn_mask > -np.inf
        add = np.where(keep, 0 if attn_mask.dtype == bool else attn_mask, 0).astype(z.dtype)
        z = np.where(keep, z + add, z.dtype.type(-10))
    return normal(z) @ value


def blanked_after(query, key, value, attn_mask=None, scale=None):
    z = raw(query, key, scale)
    if attn_mask is None:
        return normal(z) @ value
    keep = attn_mask if attn_mask.dtype == bool else attn_mask > -np.inf
    if attn_mask.dtype != bool:
        z = z + np.where(keep, attn_mask, 0)
    return (normal(z) * keep) @ value


def blanked_scores(query, key, value, attn_mask=None, scale=None):
    z = raw(query, key, scale)
    if attn_mask is None:
        return normal(z) @ value
    keep = attn_mask if attn_mask.dtype == bool else np.isfinite(attn_mask)
    if attn_mask.dtype != bool:
        z = z + np.where(keep, attn_mask, 0)
    return normal(z * keep) @ value


def half_inside(query, key, value, scale=None):
    z = raw(query, key, scale).astype(np.float16).astype(query.dtype)
    return normal(z) @ value


def single_inside(query, key, value, scale=None):
    P = normal(raw(query, key, scale).astype("f4"))
    return P.astype(query.dtype) @ value


def short_exp(query, key, value, scale=None):
    z = raw(query, key, scale)
    t = (z - z.max(-1, keepdims=True)) * np.log2(np.e)
    n = np.rint(t)
    r = (t - n) * np.log(2.0)
    e = (1 + r + r * r / 2 + r * r * r / 6) * 2.0**n
    return (e / e.sum(-1, keepdims=True)).astype(query.dtype) @ value


def wrong_neighbour(query, key, value, scale=None):
    if query.ndim < 4:
        return normal(raw(query, key, scale)) @ value
    return normal(raw(query, np.roll(key, 1, 0), scale)) @ np.roll(value, 1, 0)


def ignores_scale(query, key, value, attn_mask=None, is_causal=False, scale=None):
    z = raw(query, key, None) + bias(attn_mask, query.dtype)
    if is_causal:
        z[..., ~triangle(query, key)] = -np.inf
    return normal(z) @ value
