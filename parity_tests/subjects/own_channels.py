"""Layers in which each head projects its own channels of the inputs, and layers of heads in lists."""

from __future__ import annotations

import torch
from torch import nn

from styles import attend


class OneForAll(nn.Module):
    """Right: one Linear as wide as a head for all heads, as in a well-known lesson.

    mask: 0 hides, (N, 1, 1, S) or (N, 1, L, S).
    """

    def __init__(self, embed_size, heads):
        super().__init__()
        self.heads = heads
        self.head_dim = embed_size // heads
        self.values, self.keys, self.queries = (
            nn.Linear(self.head_dim, self.head_dim, bias=False) for _ in range(3)
        )
        self.fc_out = nn.Linear(heads * self.head_dim, embed_size)

    def project(self, values, keys, query):
        """Return the projected heads."""
        return self.values(values), self.keys(keys), self.queries(query)

    def root(self):
        """Return what scores are divided by."""
        return self.head_dim**0.5

    def forward(self, values, keys, query, mask):
        """Return (N, L, E)."""
        parted = (x.reshape(len(x), -1, self.heads, self.head_dim) for x in (values, keys, query))
        values, keys, query = self.project(*parted)
        energy = torch.einsum("nqhd,nkhd->nhqk", query, keys)
        if mask is not None:
            energy = energy.masked_fill(mask == 0, -1e20)
        weights = (energy / self.root()).softmax(dim=-1)
        return self.fc_out(torch.einsum("nhqk,nkhd->nqhd", weights, values).flatten(2))


class ScaledByTheWidth(OneForAll):
    """Wrong: divides by the root of the whole width."""

    def root(self):
        """Return what scores are divided by."""
        return (self.heads * self.head_dim) ** 0.5


class KeysByValues(OneForAll):
    """Wrong: the keys are projected by the Linear of the values."""

    def project(self, values, keys, query):
        """Return the projected heads."""
        return self.values(values), self.values(keys), self.queries(query)


class OneForEach(nn.Module):
    """Right: a Linear for each head and part, of the head's own channels."""

    def __init__(self, d, n_heads=2):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d // n_heads
        self.q_mappings, self.k_mappings, self.v_mappings = (
            nn.ModuleList(nn.Linear(self.d_head, self.d_head) for _ in range(n_heads))
            for _ in range(3)
        )

    def keys(self, head, rows):
        """Return the projected keys of one head."""
        return self.k_mappings[head](rows)

    def forward(self, sequences):
        """Return (N, L, E)."""
        found = []
        for head, rows in enumerate(sequences.split(self.d_head, dim=-1)):
            q, k, v = self.q_mappings[head](rows), self.keys(head, rows), self.v_mappings[head](rows)
            found.append(attend(q, k, v))
        return torch.cat(found, dim=-1)


class KeysOfTheFirstHead(OneForEach):
    """Wrong: every head projects its keys by the first Linear."""

    def keys(self, head, rows):
        """Return the projected keys of one head."""
        return self.k_mappings[0](rows)


class PackedHead(nn.Module):
    """One head, with its three projections in one Linear."""

    def __init__(self, dim, head_dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * head_dim)

    def forward(self, x):
        """Return (N, L, D)."""
        return attend(*self.qkv(x).chunk(3, -1))


class PackedHeads(nn.Module):
    """Right: heads in a list. Of three heads the Linears have the shapes of q, k and v of a layer."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.heads = nn.ModuleList(PackedHead(dim, dim // num_heads) for _ in range(num_heads))
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        """Return (N, L, E)."""
        return self.out(torch.cat([head(x) for head in self.heads], -1))


class EncoderLayer(nn.Module):
    """Without counterpart: an attention of heads in a list, and a Linear behind it."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.self_attn = PackedHeads(dim, num_heads)
        self.linear1, self.linear2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        """Return (N, L, E)."""
        return self.linear2(self.linear1(self.self_attn(x)).relu())
