"""The causal rule of few queries, and masks of single rows beside it, right and wrong."""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


def by_torch(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
    """Right: all is torch's."""
    return scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale
    )


def without_rule_for_one(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None
):
    """Wrong: a single query sees all keys, as where it is the last of a cache."""
    is_causal = is_causal and query.shape[-2] > 1
    return by_torch(query, key, value, attn_mask, dropout_p, is_causal, scale)


class CausalWithMask(nn.Module):
    """Right: it hides the keys behind a row, and those that a mask hides from it."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.heads = num_heads
        self.qkv, self.out = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)

    def rows_of(self, mask):
        """Return the rows of a mask (N, 1, T, T) that are asked."""
        return mask

    def forward(self, x, mask=None):
        """mask: (N, T) or (N, 1, T, T), 1 = attend, 0 = ignore. Return (N, T, E)."""
        q, k, v = (
            rows.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for rows in self.qkv(x).chunk(3, dim=-1)
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
        if mask is not None:
            mask = mask[:, None, None] if mask.dim() == 2 else self.rows_of(mask)
            scores = scores.masked_fill(mask == 0, -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class CausalWithLastRow(CausalWithMask):
    """Wrong: the last row of a mask hides keys from all rows."""

    def rows_of(self, mask):
        """Return one row."""
        return mask[:, :, -1:]


class LastOfKeys(nn.Module):
    """Right: the causal rule counts from the last query and key, as a decoder with a cache."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def behind(self, queries, keys):
        """Return how many keys behind its own place the first query does not see from."""
        return keys - queries + 1

    def forward(self, query, context, causal=False):
        """Return (N, L, E) of query (N, L, E) and context (N, S, E)."""
        q, k, v = (
            layer(rows).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, rows in ((self.q, query), (self.k, context), (self.v, context))
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if causal:
            queries, keys = scores.shape[-2:]
            future = torch.ones(queries, keys, dtype=torch.bool).triu(self.behind(queries, keys))
            scores = scores.masked_fill(future, -torch.inf)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class LastOfKeysFromTwo(LastOfKeys):
    """Wrong: of fewer queries than half of the keys the last sees a key too few."""

    def behind(self, queries, keys):
        """Return one key less where the queries are few."""
        return keys - queries + (2 * queries >= keys)


class FirstOfKeysBySaying(LastOfKeys):
    """Wrong, since its causal mask is aligned at the bottom right by these words alone."""

    def behind(self, queries, keys):
        """Return the next place."""
        return 1


class LastOfKeysBySaying(LastOfKeys):
    """Right: with ``causal`` query i may attend to keys j <= i + (S - L)."""


class LastOfKeysAgainstSaying(LastOfKeys):
    """Wrong: the causal rule is documented as aligned at the top left, and counts from the last."""


def _hiding(q, k, v, behind):
    hidden = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).triu(1 + behind)
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf)
    return scores.softmax(dim=-1) @ v


def queries_at_the_end(q, k, v):
    """Causal attention of (H, L, D) whose queries are the last of S keys, S >= L.

    Query i is at position S - L + i and sees the keys up to that.
    """
    return _hiding(q, k, v, k.shape[1] - q.shape[1])


def queries_at_the_start(q, k, v):
    """Causal attention of (H, L, D) whose queries are the last of S keys, S >= L.

    Query i is at position S - L + i and sees the keys up to that.
    """
    return _hiding(q, k, v, 0)  # wrong: both are counted from the first
