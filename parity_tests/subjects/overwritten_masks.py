"""A causal switch that takes the place of a mask, and masks that take the place of the switch."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    """Multi-head attention with masks as torch's, True hides, and a causal switch."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, value, attn_mask=None, key_padding_mask=None, is_causal=False):
        n, l, width = query.shape
        s = key.shape[1]
        q = self.q_proj(query).view(n, l, self.num_heads, -1).transpose(1, 2)
        k = self.k_proj(key).view(n, s, self.num_heads, -1).transpose(1, 2)
        v = self.v_proj(value).view(n, s, self.num_heads, -1).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if is_causal:
            attn_mask = torch.ones(l, s, dtype=torch.bool).triu(1)
        if attn_mask is not None:
            scores = scores.masked_fill(attn_mask, float("-inf"))
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask[:, None, None], float("-inf"))
        heads = (scores.softmax(-1) @ v).transpose(1, 2)
        return self.out_proj(heads.reshape(n, l, width))


def _attend(q, k, v, hidden):
    scores = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(hidden, float("-inf"))
    return scores.softmax(-1) @ v


def either(q, k, v, mask=None, causal=False):
    """Wrong: the rule is left out beside a mask (L, S), boolean, True where a key is visible."""
    length, keys = q.shape[-2], k.shape[-2]
    hidden = torch.zeros(length, keys, dtype=torch.bool)
    if mask is not None:
        hidden = ~mask.reshape(length, keys)
    elif causal:
        hidden = torch.ones(length, keys, dtype=torch.bool).triu(1)
    return _attend(q, k, v, hidden)


def both(q, k, v, mask=None, causal=False):
    """Right: a mask (L, S), boolean, True where a key is visible, and the rule beside it."""
    length, keys = q.shape[-2], k.shape[-2]
    hidden = torch.zeros(length, keys, dtype=torch.bool)
    if mask is not None:
        hidden = ~mask.reshape(length, keys)
    if causal:
        hidden = hidden | torch.ones(length, keys, dtype=torch.bool).triu(1)
    return _attend(q, k, v, hidden)


def one_of_both(q, k, v, mask=None, causal=False):
    """Right: both at once are refused."""
    if mask is not None and causal:
        raise ValueError("pass a mask or the switch")
    return both(q, k, v, mask, causal)
