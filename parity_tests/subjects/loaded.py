"""Layers that are built already, with weights of their own: trained ones, say."""

import math

import torch
from torch import nn

import mha_numpy


class Attention(nn.Module):
    """Linears of their own, and a scale that a caller may change."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model, bias=False)
        self.W_o = nn.Linear(d_model, d_model)
        self.n_heads = n_heads
        self.scale = 1 / math.sqrt(d_model // n_heads)
        self.register_buffer("steps", torch.tensor(7))

    def forward(self, query, key, value):
        n, _, width = query.shape

        def split(rows):
            return rows.view(n, rows.shape[1], self.n_heads, -1).transpose(1, 2)

        q, k, v = split(self.W_q(query)), split(self.W_k(key)), split(self.W_v(value))
        p = torch.softmax(self.scale * q @ k.transpose(-1, -2), dim=-1)
        return self.W_o((p @ v).transpose(1, 2).reshape(n, query.shape[1], width))


torch.manual_seed(5)
of_torch = nn.MultiheadAttention(12, 3, kdim=7, vdim=5, dropout=0.5, batch_first=True)
linear = Attention(8, 2)
# Its class is right: what is wrong is this layer alone.
changed = Attention(8, 2)
changed.scale = 1 / math.sqrt(8)
of_numpy = mha_numpy.MultiheadAttention(6, 2)
del linear.n_heads
headless = linear
linear = Attention(8, 2).double()
