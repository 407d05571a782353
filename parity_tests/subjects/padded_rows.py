"""Wrong on purpose, but for ``AnsweredLayer``: the output rows of padded queries are 0."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


def masked_output(Q, K, V, n_heads, key_padding_mask=None):
    """Multiply the rows by the mask wherever there are as many as keys."""
    q, k, v = (np.stack(np.split(x, n_heads, axis=-1), axis=-3) for x in (Q, K, V))
    z = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if key_padding_mask is not None:
        z = np.where(np.asarray(key_padding_mask)[..., None, None, :], -np.inf, z)
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    out = np.concatenate(list(np.moveaxis(e / e.sum(axis=-1, keepdims=True) @ v, -3, 0)), axis=-1)
    if key_padding_mask is None or Q.shape[-2] != K.shape[-2]:
        return out
    return out * np.logical_not(key_padding_mask)[..., None]


class ZeroedLayer(nn.Module):
    """Linear layers of torch for self-attention, right but for the padded rows."""

    zeroes = True

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, x, key_padding_mask=None):
        """Return (N, L, E)."""
        parts = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (f(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for f in parts)
        z = q @ k.mT / q.shape[-1] ** 0.5
        if key_padding_mask is not None:
            z = z.masked_fill(key_padding_mask[:, None, None], float("-inf"))
        out = (z.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)
        if self.zeroes and key_padding_mask is not None:
            out = out * ~key_padding_mask[..., None]
        return self.out_proj(out)


class AnsweredLayer(ZeroedLayer):
    """Right: padding hides keys, and every row is answered."""

    zeroes = False


class Zeroed(nn.MultiheadAttention):
    """Like torch's layer, but of one array as query and key the padded rows are 0."""

    def forward(self, query, key, value, key_padding_mask=None, **others):
        """Return output and weights."""
        output, weights = super().forward(query, key, value, key_padding_mask, **others)
        if key_padding_mask is None or query is not key or query.ndim == 2:
            return output, weights
        marked = key_padding_mask
        if marked.dtype != torch.bool:
            marked = marked == float("-inf")
        rows = marked[..., None] if self.batch_first else marked.mT[..., None]
        return output.masked_fill(rows, 0), weights
