"""Layers whose heads of queries share one head of keys and values."""

from __future__ import annotations

import torch
from torch import nn

from styles import attend, merge, split


class MultiQuery(nn.Module):
    """Right: separate Linears, and a mask that keeps where it is 1."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, head_dim = n_heads, d_model // n_heads
        self.q_proj, self.o_proj = (nn.Linear(d_model, d_model) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(d_model, head_dim) for _ in range(2))

    def heads(self, x):
        """Return the queries (N, H, L, D)."""
        return split(self.q_proj(x), self.n_heads)

    def forward(self, x, mask=None):
        """Return (N, L, E)."""
        hidden = None if mask is None else mask == 0
        k, v = self.k_proj(x)[:, None], self.v_proj(x)[:, None]
        return self.o_proj(merge(attend(self.heads(x), k, v, hidden)))


class MultiQueryReversed(MultiQuery):
    """Wrong: the heads of the queries stand in reversed order."""

    def heads(self, x):
        """Return the queries (N, H, L, D)."""
        return super().heads(x).flip(1)


class PackedKeys(nn.Module):
    """Right: keys and values by one Linear of two heads' width."""

    def __init__(self, dim, *, dim_head=64, heads=8):
        super().__init__()
        self.heads, self.scale = heads, dim_head**-0.5
        self.to_q, self.to_out = (
            nn.Linear(*shape, bias=False)
            for shape in ((dim, dim_head * heads), (dim_head * heads, dim))
        )
        self.to_kv = nn.Linear(dim, 2 * dim_head, bias=False)

    def keys_and_values(self, context):
        """Return both, (N, S, D)."""
        return self.to_kv(context).chunk(2, dim=-1)

    def forward(self, x, context):
        """Return (N, L, E)."""
        q = split(self.to_q(x), self.heads) * self.scale
        k, v = self.keys_and_values(context)
        weights = torch.einsum("nhld,nsd->nhls", q, k).softmax(-1)
        return self.to_out(merge(torch.einsum("nhls,nsd->nhld", weights, v)))


class PackedInOtherOrder(PackedKeys):
    """Wrong: the values come first."""

    def keys_and_values(self, context):
        """Return both, (N, S, D)."""
        return super().keys_and_values(context)[::-1]


class MultiQueryOfOwnWidth(nn.Module):
    """Right: a head's width is `O_dim`, and each has a matrix of queries; one key and value head."""

    def __init__(self, embedding_dims, O_dim, heads=1):
        super().__init__()
        self.q = nn.Parameter(torch.randn(heads, embedding_dims, O_dim))
        self.k = nn.Parameter(torch.randn(embedding_dims, O_dim))
        self.v = nn.Parameter(torch.randn(embedding_dims, O_dim))
        self.Wo = nn.Parameter(torch.randn(O_dim * heads, embedding_dims))

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = x[:, None] @ self.q, (x @ self.k)[:, None], (x @ self.v)[:, None]
        heads = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return heads.transpose(1, 2).flatten(2) @ self.Wo
