"""A layer and a function with torch's own names, options and mask polarities, in NumPy."""

from __future__ import annotations

import numpy as np


def attend(query, key, value, attn_mask=None, is_causal=False, scale=None):
    """Return attention over (..., L, D) arrays; a boolean mask is True where a key takes part."""
    logits = query @ key.swapaxes(-1, -2)
    logits *= query.shape[-1] ** -0.5 if scale is None else scale
    if is_causal:
        attn_mask = np.tri(*logits.shape[-2:], dtype=bool)
    if attn_mask is not None:
        keep = attn_mask.dtype == bool
        logits = np.where(attn_mask, logits, -np.inf) if keep else logits + attn_mask
    logits = logits - logits.max(axis=-1, keepdims=True)
    odds = np.exp(logits)
    return (odds / odds.sum(axis=-1, keepdims=True)) @ value


class Attention:
    """Packed weights under torch's names; no bias_kv, no zero_attn, output alone."""

    def __init__(self, embed_dim, num_heads, bias=True, batch_first=False, dtype=np.float64):
        self.num_heads = num_heads
        self.batch_first = batch_first
        self.weights = {
            "in_proj_weight": np.zeros((3 * embed_dim, embed_dim), dtype),
            "out_proj.weight": np.zeros((embed_dim, embed_dim), dtype),
        }
        if bias:
            self.weights["in_proj_bias"] = np.zeros(3 * embed_dim, dtype)
            self.weights["out_proj.bias"] = np.zeros(embed_dim, dtype)

    def state_dict(self):
        """Return the weights."""
        return self.weights

    def load_state_dict(self, state_dict):
        """Take all weights over."""
        assert set(state_dict) == set(self.weights)
        self.weights = dict(state_dict)

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None):
        """Return the output; True in a boolean mask hides."""
        rows = [query, key, value]
        if query.ndim == 2:
            rows = [each[None] for each in rows]
        elif not self.batch_first:
            rows = [each.swapaxes(0, 1) for each in rows]
        blocks = np.split(self.weights["in_proj_weight"], 3)
        bias = np.split(self.weights.get("in_proj_bias", np.zeros(3 * len(blocks[0]), blocks[0].dtype)), 3)
        q, k, v = (self.split(x @ w.T + b) for x, w, b in zip(rows, blocks, bias))
        mask = np.zeros((len(q), 1, q.shape[2], k.shape[2]), q.dtype)
        if key_padding_mask is not None:
            mask = mask + additive(key_padding_mask, q.dtype).reshape(len(q), 1, 1, -1)
        if attn_mask is not None:
            added = additive(attn_mask, q.dtype)
            mask = mask + (added if added.ndim == 2 else added.reshape(*q.shape[:2], *added.shape[1:]))
        heads = attend(q, k, v, mask).swapaxes(1, 2)
        merged = heads.reshape(*heads.shape[:2], -1) @ self.weights["out_proj.weight"].T
        if "out_proj.bias" in self.weights:
            merged = merged + self.weights["out_proj.bias"]
        if query.ndim == 2:
            return merged[0], None
        return (merged if self.batch_first else merged.swapaxes(0, 1)), None

    def split(self, rows):
        """Return (N, T, E) as (N, H, T, D)."""
        return rows.reshape(*rows.shape[:2], self.num_heads, -1).swapaxes(1, 2)


def additive(mask, dtype):
    """Return a mask that is added to the logits."""
    return np.where(mask, -np.inf, 0.0).astype(dtype) if mask.dtype == bool else mask


def build(embed_dim, num_heads, bias=True, batch_first=False, dtype=np.float64):
    """Return a layer: not its class, so that the way of calling it has to be named."""
    return Attention(embed_dim, num_heads, bias, batch_first, dtype)
