"""Layers whose causal rule is a mask of the largest length, which is cut or not."""

from __future__ import annotations

import torch
from torch import nn


class Uncut(nn.Module):
    """Right: with the rule it takes calls of the length alone that it is built for."""

    def __init__(self, seq_len, d_model, num_heads, causal=False):
        super().__init__()
        self.num_heads, self.causal = num_heads, causal
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.register_buffer("hidden", self.rule(torch.ones(seq_len, seq_len, dtype=torch.bool)))

    def rule(self, ones):
        return ones.triu(1)

    def cut(self, length):
        return self.hidden

    def forward(self, x):
        q, k, v = (
            each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, -1)
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if self.causal:
            scores = scores.masked_fill(self.cut(x.shape[1]), float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class UncutBehind(Uncut):
    """Wrong: a row does not see itself; the first sees itself alone."""

    def rule(self, ones):
        return ones.triu(0) & ~ones.new_tensor([True] + [False] * (len(ones) - 1)).diag()


class Cut(Uncut):
    """Right: of any length."""

    def cut(self, length):
        return self.hidden[:length, :length]
