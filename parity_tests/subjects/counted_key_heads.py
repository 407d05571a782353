"""Functions whose call gets the number of key heads beside that of the query heads."""

from __future__ import annotations

import numpy as np
import torch
from functions_of_weights import attend, merge, split


def of_weights(x, Wq, Wk, Wv, Wo, n_heads, n_kv_heads):  # noqa: N803  (as public code has them)
    """Right: query heads g R … g R + R - 1 use key head g."""
    q, k, v = split(x @ Wq, n_heads), split(x @ Wk, n_kv_heads), split(x @ Wv, n_kv_heads)
    k, v = (np.repeat(rows, n_heads // n_kv_heads, axis=-3) for rows in (k, v))
    return merge(attend(q, k, v)) @ Wo


def tiled(x, Wq, Wk, Wv, Wo, n_heads, n_kv_heads):  # noqa: N803
    """Wrong: query head h uses key head h % G."""
    q, k, v = split(x @ Wq, n_heads), split(x @ Wk, n_kv_heads), split(x @ Wv, n_kv_heads)
    k, v = (np.concatenate([rows] * (n_heads // n_kv_heads), axis=-3) for rows in (k, v))
    return merge(attend(q, k, v)) @ Wo


def of_rows(query, key, value, num_heads, num_kv_heads=None):
    """Right, without weights; as many key heads as query heads by default."""
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    k, v = (np.repeat(split(x, kv_heads), num_heads // kv_heads, axis=-3) for x in (key, value))
    return merge(attend(split(query, num_heads), k, v))


def first_for_all(query, key, value, num_heads, num_kv_heads=None):
    """Wrong with fewer key heads: every query head uses the first."""
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    k, v = (split(x, kv_heads) for x in (key, value))
    if kv_heads < num_heads:
        k, v = (np.repeat(rows[..., :1, :, :], num_heads, axis=-3) for rows in (k, v))
    return merge(attend(split(query, num_heads), k, v))


def two_by_default(q, k, v, num_heads=4, num_groups=2):
    """Right: the number of key heads defaults to one that is not that of the query heads."""
    return of_rows(q, k, v, num_heads, num_groups)


def counted_by_rest(q, k, v, num_heads=4, num_groups=1):
    """Right: `num_groups` query heads share a key head, which is no number of key heads."""
    return of_rows(q, k, v, num_heads, num_heads // num_groups)


class ByRatio(torch.nn.Module):
    """Right: `gqa_ratio` query heads share a key head, two of them by default."""

    def __init__(self, embed_dim, num_heads, gqa_ratio=2):
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, num_heads // gqa_ratio
        kv_width = self.num_kv_heads * (embed_dim // num_heads)
        self.q_proj = torch.nn.Linear(embed_dim, embed_dim)
        self.k_proj = torch.nn.Linear(embed_dim, kv_width)
        self.v_proj = torch.nn.Linear(embed_dim, kv_width)
        self.o_proj = torch.nn.Linear(embed_dim, embed_dim)

    def shared(self, rows):
        """Return keys or values (N, G, S, D) for each query head."""
        return rows.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)

    def forward(self, x):
        """Return (N, L, E)."""
        q = self.q_proj(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        k, v = (
            self.shared(each(x).unflatten(-1, (self.num_kv_heads, -1)).transpose(1, 2))
            for each in (self.k_proj, self.v_proj)
        )
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))


class TiledByRatio(ByRatio):
    """Wrong: query head h uses key head h % G."""

    def shared(self, rows):
        """Return keys or values (N, G, S, D) for each query head."""
        return rows.repeat(1, self.num_heads // self.num_kv_heads, 1, 1)


class ExchangedLayer(torch.nn.Module):
    """Wrong: its queries are split as (query head of a group, key head)."""

    def __init__(self, embed_dim, num_heads, num_kv_heads):
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        head_dim = embed_dim // num_heads
        self.q_proj = torch.nn.Linear(embed_dim, embed_dim)
        self.k_proj = torch.nn.Linear(embed_dim, num_kv_heads * head_dim)
        self.v_proj = torch.nn.Linear(embed_dim, num_kv_heads * head_dim)
        self.o_proj = torch.nn.Linear(embed_dim, embed_dim)

    def grouped(self, queries):
        """Return the queries as (N, G, R, L, D)."""
        split = queries.unflatten(-1, (-1, self.num_kv_heads, queries.shape[-1] // self.num_heads))
        return split.permute(0, 3, 2, 1, 4)

    def merged(self, rows):
        """Return the rows (N, G, R, L, D) as (N, L, E)."""
        return rows.permute(0, 3, 1, 2, 4).flatten(2)

    def forward(self, x):
        k, v = (
            proj(x).unflatten(-1, (self.num_kv_heads, -1)).transpose(1, 2)[:, :, None]
            for proj in (self.k_proj, self.v_proj)
        )
        q = self.grouped(self.q_proj(x))
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        return self.o_proj(self.merged(weights @ v))


class OutputExchangedLayer(ExchangedLayer):
    """Wrong: its output is merged as (query head of a group, key head)."""

    def grouped(self, queries):
        split = queries.unflatten(-1, (self.num_kv_heads, -1, queries.shape[-1] // self.num_heads))
        return split.permute(0, 2, 3, 1, 4)

    def merged(self, rows):
        return rows.permute(0, 3, 2, 1, 4).flatten(2)
