"""One head of self-attention, built with the width of its input and its own."""

import math

import torch
from torch import nn

n_embd = 384


class Head(nn.Module):
    """Right: scores are divided by the root of the head's width."""

    def __init__(self, embed_size, head_size, block_size=256):
        super().__init__()
        self.query = nn.Linear(embed_size, head_size, bias=False)
        self.key = nn.Linear(embed_size, head_size, bias=False)
        self.value = nn.Linear(embed_size, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))

    def width(self, x, k):
        return k.shape[-1]

    def forward(self, x):
        length = x.shape[1]
        k, q, v = self.key(x), self.query(x), self.value(x)
        scores = q @ k.transpose(-2, -1) * self.width(x, k) ** -0.5
        scores = scores.masked_fill(self.tril[:length, :length] == 0, float("-inf"))
        return scores.softmax(-1) @ v


class ByInput(Head):
    """Wrong: by the root of the input's width."""

    def width(self, x, k):
        return x.shape[-1]


class OfModule(nn.Module):
    """Wrong: likewise, with the input's width as a number of the module."""

    def __init__(self, head_size):
        super().__init__()
        self.query = nn.Linear(n_embd, head_size)
        self.key = nn.Linear(n_embd, head_size)
        self.value = nn.Linear(n_embd, head_size)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-2, -1) / math.sqrt(x.shape[-1])
        return scores.softmax(-1) @ self.value(x)


class Joined(nn.Module):
    """Right, with an output projection back to the input's width."""

    def __init__(self, dim, head_dim):
        super().__init__()
        self.head_dim = head_dim
        self.to_q = nn.Linear(dim, head_dim)
        self.to_k = nn.Linear(dim, head_dim)
        self.to_v = nn.Linear(dim, head_dim)
        self.to_out = nn.Linear(head_dim, dim)

    def forward(self, x, mask=None):
        """mask: (batch, length) bool, True for tokens that may be seen."""
        scores = self.to_q(x) @ self.to_k(x).transpose(-2, -1) * self.head_dim**-0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], float("-inf"))
        return self.to_out(scores.softmax(-1) @ self.to_v(x))


class WideValues(nn.Module):
    """Right: its values are as wide as the input, whatever the head's width is."""

    def __init__(self, embed_size, head_size):
        super().__init__()
        self.query = nn.Linear(embed_size, head_size)
        self.key = nn.Linear(embed_size, head_size)
        self.value = nn.Linear(embed_size, embed_size)

    def forward(self, x):
        q, k = self.query(x), self.key(x)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return scores.softmax(-1) @ self.value(x)


class Normed(OfModule):
    """Wrong: as OfModule, behind a LayerNorm."""

    def __init__(self, head_size):
        super().__init__(head_size)
        self.norm = nn.LayerNorm(n_embd)

    def forward(self, x):
        return super().forward(self.norm(x))


class OfOneWidth(nn.Module):
    """Right: built with one width, which is that of its input and of its head."""

    def __init__(self, embed_dim):
        super().__init__()
        self.query = nn.Linear(embed_dim, embed_dim)
        self.key = nn.Linear(embed_dim, embed_dim)
        self.value = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-2, -1) / math.sqrt(x.shape[-1])
        return scores.softmax(-1) @ self.value(x)
