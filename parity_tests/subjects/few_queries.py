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
