"""A layer whose causal switch takes the place of its mask."""

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
