"""Layers that are built already, each unlike a new one of its class; the class counts its own."""

import math

import torch
from torch import nn
from torch.nn import functional as F

LENGTH = 64  # of the mask that a causal layer keeps


class Attention(nn.Module):
    """A packed Linear, perhaps norms of queries and keys, dropout on the weights."""

    count = 0  # layers of these classes that were built

    def __init__(self, dim, num_heads, qk_norm=False, dropout=0.0):
        super().__init__()
        Attention.count += 1
        self.num_heads = num_heads
        self.scale = 1 / math.sqrt(dim // num_heads)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)
        width = dim // num_heads
        self.q_norm = nn.LayerNorm(width) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(width) if qk_norm else nn.Identity()
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        scores = self.scale * self.q_norm(q) @ self.k_norm(k).transpose(-1, -2)
        weights = self.dropped(torch.softmax(self.masked(scores), dim=-1))
        return self.proj((weights @ v).transpose(1, 2).reshape(n, length, width))

    def masked(self, scores):
        return scores

    def dropped(self, weights):
        return self.drop(weights)


class DropsAlways(Attention):
    """Drops weights in evaluation too."""

    def dropped(self, weights):
        return F.dropout(weights, self.drop.p)


class Causal(Attention):
    """Keeps the mask of its longest input, as nanoGPT does."""

    def __init__(self, dim, num_heads, length=LENGTH):
        super().__init__(dim, num_heads)
        self.register_buffer("seen", torch.ones(length, length).tril().bool())

    def masked(self, scores):
        length = scores.shape[-1]
        return scores.masked_fill(~self.seen[:length, :length], float("-inf"))


class Switched(Attention):
    """Hides the future where it is built to."""

    def __init__(self, dim, num_heads, causal=False):
        super().__init__(dim, num_heads)
        self.causal = causal

    def masked(self, scores):
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(hidden, float("-inf")) if self.causal else scores


class RaisesInTheMiddle(Causal):
    """Raises at one length and answers longer ones."""

    def masked(self, scores):
        if scores.shape[-1] == 9:
            raise ValueError("9 is not served")
        return super().masked(scores)


torch.manual_seed(3)
right = Attention(24, 3)
scaled = Attention(24, 3)
scaled.scale = 1.0
normed = Attention(24, 3, qk_norm=True)
spare = Attention(24, 3)
spare.unread = nn.Linear(2, 2)  # in the state, without a part in the output
drops = Attention(24, 3, dropout=0.5)
drops_always = DropsAlways(24, 3, dropout=0.5)
short = Causal(24, 3)
wiped = Causal(24, 3)
wiped.seen.fill_(True)
short_and_scaled = Causal(24, 3)
short_and_scaled.scale = 1.0
switched_on, switched_off = Switched(24, 3, causal=True), Switched(24, 3)
switched_and_scaled = Switched(24, 3, causal=True)
switched_and_scaled.scale = 1.0
gap = RaisesInTheMiddle(24, 3, 4096)
gap_and_short = RaisesInTheMiddle(24, 3)
held = Attention(24, 3)
# A function put into the layer by hand: a copy's is the same, with this layer's weights.
held.forward = lambda x: Attention.forward(held, x)
