"""Right attentions that serve less than their parameters or shapes suggest."""

from __future__ import annotations

import math

import numpy as np
import torch


def _softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def self_attention_only(Q, K, V, n_heads):
    """Lay K and V out with the number of queries."""
    q, k, v = (a.reshape(len(Q), n_heads, -1).swapaxes(0, 1) for a in (Q, K, V))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    return (_softmax(scores) @ v).swapaxes(0, 1).reshape(len(Q), -1).astype(Q.dtype)


def cuts_the_keys(Q, K, V, n_heads):
    """Use as many keys as there are queries, and answer all the same."""
    K, V = (np.resize(a, (len(Q), a.shape[-1])) for a in (K, V))
    return self_attention_only(Q, K, V, n_heads)


def first_axis_is_heads(Q, K, V, n_heads):
    """Take 3-D inputs for heads that are split already, as ONNX's operator does."""
    if Q.ndim == 2:
        q, k, v = (np.stack(np.split(a, n_heads, axis=-1)) for a in (Q, K, V))
    else:
        q, k, v = Q, K, V
    heads = _softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])) @ v
    merged = heads if Q.ndim == 3 else np.concatenate(list(heads), axis=-1)
    return merged.astype(Q.dtype)


def mixes_samples(Q, K, V, n_heads):
    """Serve batches, and hand every sample the keys and values of the first."""
    q, k, v = (np.stack(np.split(a, n_heads, axis=-1), axis=-3) for a in (Q, K, V))
    if Q.ndim == 3:
        k, v = (np.broadcast_to(a[:1], a.shape) for a in (k, v))
    heads = _softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])) @ v
    return np.concatenate(list(np.moveaxis(heads, -3, 0)), axis=-1).astype(Q.dtype)


def contiguous_only(Q, K, V, n_heads):
    """Refuse what does not lie row by row in memory, as bindings to C do."""
    if not all(a.flags.c_contiguous for a in (Q, K, V)):
        raise TypeError("arrays must be C-contiguous")
    return self_attention_only(Q, K, V, n_heads)


def float64_only(Q, K, V, n_heads):
    """Refuse every other dtype."""
    if Q.dtype != np.float64:
        raise TypeError(f"expected float64, got {Q.dtype}")
    return self_attention_only(Q, K, V, n_heads)


class Boolean(torch.nn.MultiheadAttention):
    """torch's layer, which refuses float masks, unbatched inputs and unlike widths."""

    def __init__(self, embed_dim, num_heads, bias=True, batch_first=True, device=None, dtype=None):
        super().__init__(
            embed_dim, num_heads, bias=bias, batch_first=batch_first, device=device, dtype=dtype
        )

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None, need_weights=True):
        """Attend."""
        if query.ndim != 3:
            raise RuntimeError("query must be a batch")
        for mask in (key_padding_mask, attn_mask):
            if mask is not None and mask.dtype != torch.bool:
                raise TypeError("masks must be boolean")
        return super().forward(
            query, key, value, key_padding_mask=key_padding_mask, attn_mask=attn_mask,
            need_weights=need_weights,
        )  # fmt: skip


def grouped_heads_raise(query, key, value, attn_mask=None, scale=None, enable_gqa=False):
    """Take the keyword for grouped heads and no grouped heads."""
    if query.shape[1 if query.ndim == 4 else 0] != key.shape[1 if key.ndim == 4 else 0]:
        raise NotImplementedError("enable_gqa")
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, scale=scale
    )


def tiles_of_the_third_axis(query, key, value, scale=None):
    """Take (N, H, L, D); of (H, L, D) the tiles would be of the width of a head."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    tiles = range(0, key.shape[2], 16)
    scores = torch.cat([query @ key[:, :, i : i + 16].mT for i in tiles], dim=-1) * scale
    return scores.softmax(-1) @ value
