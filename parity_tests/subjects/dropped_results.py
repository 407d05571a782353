"""Attentions with a call whose result is dropped: they equal torch's, and not what was meant."""

import math

import torch
from torch import nn


class MeantToHide(nn.Module):
    """Causal as its author meant it: the scores are masked in a copy that is dropped."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        N, L, E = x.shape
        q, k, v = (t.view(N, L, self.num_heads, -1).transpose(1, 2)
                   for t in self.in_proj(x).chunk(3, dim=-1))  # fmt: skip
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        future = torch.ones(L, L, dtype=torch.bool).triu(1)
        scores.masked_fill(future, float("-inf"))
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(N, L, E))


class Masked(MeantToHide):
    """The same, masked in place."""

    def forward(self, x):
        N, L, E = x.shape
        q, k, v = (t.view(N, L, self.num_heads, -1).transpose(1, 2)
                   for t in self.in_proj(x).chunk(3, dim=-1))  # fmt: skip
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores.masked_fill_(torch.ones(L, L, dtype=torch.bool).triu(1), float("-inf"))
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(N, L, E))


class MeantForHeads(Masked):
    """Not causal; its mask gets no axis of heads, since that is made in a copy that is dropped."""

    def forward(self, x, mask=None):
        if mask is not None:
            mask.unsqueeze(1)
        N, L, E = x.shape
        q, k, v = (t.view(N, L, self.num_heads, -1).transpose(1, 2)
                   for t in self.in_proj(x).chunk(3, dim=-1))  # fmt: skip
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores if mask is None else scores.masked_fill(mask == 0, float("-inf"))
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(N, L, E))
