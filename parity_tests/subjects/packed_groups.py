"""Layers with one Linear for queries and the fewer heads of keys and values."""

from __future__ import annotations

import torch
from torch import nn

from styles import merge, split


class InParts(nn.Module):
    """Right: all query heads, then the key heads, then those of the values."""

    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.head_dim = dim // n_heads
        self.qkv_proj = nn.Linear(dim, (n_heads + 2 * n_kv_heads) * self.head_dim, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)

    def repeated(self, rows):
        """Return keys or values with one head for each of the queries."""
        return rows.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)

    def forward(self, x):
        """Return (N, L, E)."""
        widths = [count * self.head_dim for count in (self.n_heads, *[self.n_kv_heads] * 2)]
        q, k, v = self.qkv_proj(x).split(widths, dim=-1)
        q = split(q, self.n_heads) * self.head_dim**-0.5
        k, v = (self.repeated(split(rows, self.n_kv_heads)) for rows in (k, v))
        return self.o_proj(merge((q @ k.mT).softmax(-1) @ v))


class InPartsTiled(InParts):
    """Wrong: key heads are tiled over the query heads."""

    def repeated(self, rows):
        """Return keys or values with one head for each of the queries."""
        return rows.repeat(1, self.n_heads // self.n_kv_heads, 1, 1)


class ByGroups(nn.Module):
    """Right: the query heads of a group, its key head and its value head, then the next group."""

    def __init__(self, hidden_size, num_heads, num_key_value_heads=None):
        super().__init__()
        self.heads, self.groups = num_heads, num_key_value_heads or num_heads
        self.head_dim = hidden_size // num_heads
        self.wqkv = nn.Linear(hidden_size, (num_heads + 2 * self.groups) * self.head_dim)
        self.wo = nn.Linear(hidden_size, hidden_size)

    def scale(self, group):
        """Return the factor of the scores where ``group`` query heads share a key head."""
        del group
        return self.head_dim**-0.5

    def forward(self, x):
        """Return (N, L, E)."""
        shared = self.heads // self.groups
        rows = self.wqkv(x).unflatten(-1, (self.groups, shared + 2, self.head_dim))
        q, k, v = rows.split([shared, 1, 1], dim=3)
        scores = torch.einsum("nlgsd,nmgtd->ngslm", q, k) * self.scale(shared)
        heads = torch.einsum("ngslm,nmgtd->nlgsd", scores.softmax(-1), v)
        return self.wo(heads.flatten(2))


class ByGroupsScaledTwice(ByGroups):
    """Wrong: the scores of a group are divided by its size too."""

    def scale(self, group):
        """Return the factor of the scores where ``group`` query heads share a key head."""
        return super().scale(group) / group


class OneForAll(nn.Module):
    """Right: one head of keys and values, behind the queries in `c_attn`."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.c_attn = nn.Linear(embed_dim, embed_dim + 2 * self.head_dim)
        self.c_proj = nn.Linear(embed_dim, embed_dim)

    def keys_and_values(self, rows):
        """Return both, (N, S, D)."""
        return rows.chunk(2, dim=-1)

    def forward(self, x, attention_mask=None):
        """Return (N, L, E); the mask is added to the scores."""
        q, both = self.c_attn(x).split([x.shape[-1], 2 * self.head_dim], dim=-1)
        k, v = self.keys_and_values(both)
        scores = split(q, self.num_heads) @ k[:, None].mT / self.head_dim**0.5
        if attention_mask is not None:
            scores = scores + attention_mask
        return self.c_proj(merge(scores.softmax(-1) @ v[:, None]))


class OneForAllExchanged(OneForAll):
    """Wrong: the last rows are taken for the keys."""

    def keys_and_values(self, rows):
        """Return both, (N, S, D)."""
        return rows.chunk(2, dim=-1)[::-1]


class EqualAlone(InParts):
    """Right as far as it goes: fewer key heads raise."""

    def repeated(self, rows):
        """Return keys or values with one head for each of the queries."""
        if self.n_kv_heads != self.n_heads:
            raise NotImplementedError("grouped heads come later")
        return rows


class FoldedRows(InParts):
    """Right: the query heads of a group stand behind each other as rows, of one key head."""

    def mask_of_all(self, allow, times):
        """Return the mask for the rows of all heads of a group."""
        return allow.repeat(1, times, 1)[:, None]

    def forward(self, x, allow=None):
        """Return (N, L, E); allow: booleans (N, L, L), True where a row may look."""
        samples, length, _ = x.shape
        groups, times = self.n_kv_heads, self.n_heads // self.n_kv_heads
        widths = [count * self.head_dim for count in (self.n_heads, groups, groups)]
        q, k, v = self.qkv_proj(x).split(widths, dim=-1)
        q, k, v = split(q, self.n_heads), split(k, groups), split(v, groups)
        q = q.reshape(samples, groups, times * length, self.head_dim) * self.head_dim**-0.5
        scores = q @ k.mT
        if allow is not None:
            scores = scores.masked_fill(~self.mask_of_all(allow, times), -torch.inf)
        mixed = (scores.softmax(-1) @ v).view(samples, self.n_heads, length, self.head_dim)
        return self.o_proj(merge(mixed))


class FoldedRowsInTurn(FoldedRows):
    """Wrong: each row of the mask is repeated, where the rows of a head follow those of another."""

    def mask_of_all(self, allow, times):
        """Return another mask than that of the heads, with several in a group."""
        return allow.repeat_interleave(times, dim=1)[:, None]
