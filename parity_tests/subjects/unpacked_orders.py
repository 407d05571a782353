"""Layers of one Linear for q, k and v whose code unpacks them in an order of its own."""

from __future__ import annotations

import torch
from torch import nn


class _Packed(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.c_attention = nn.Linear(n_embd, 3 * n_embd)
        self.c_projection = nn.Linear(n_embd, n_embd)

    def attend(self, q, k, v):
        """Return the projected output of heads, causal."""
        q, k, v = (x.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for x in (q, k, v))
        scores = q @ k.mT * q.shape[-1] ** -0.5
        hidden = torch.ones(scores.shape[-2:]).triu(1).bool()
        weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
        return self.c_projection((weights @ v).transpose(1, 2).flatten(2))


class KeysFirst(_Packed):
    """Self-attention of (B, T, C), causal."""

    def forward(self, x):
        """Attend; the code says that keys come first, and the name says nothing."""
        k, q, v = self.c_attention(x).chunk(3, dim=-1)
        return self.attend(q, k, v)


class HeldFirst(_Packed):
    """Self-attention of (B, T, C), causal."""

    def forward(self, x):
        """Attend; a variable holds the output before it is unpacked, to a list."""
        held = self.c_attention(x)
        [k, q, v] = held.chunk(3, dim=-1)
        return self.attend(q, k, v)


class OfAnArray(_Packed):
    """Self-attention of (B, T, C), causal, whose packed weight is a parameter of its own."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.c_attn = nn.Parameter(self.c_attention.weight.detach().T.clone())
        del self.c_attention

    def forward(self, x):
        """Attend; the code says that keys come first, and the name is that of any packed weight."""
        k, q, v = (x @ self.c_attn).chunk(3, dim=-1)
        return self.attend(q, k, v)


class SaysTwice(_Packed):
    """Self-attention of (B, T, C), causal."""

    def forward(self, x, cached=False):
        """Wrong on purpose: two branches unpack in two orders, so that neither is the layer's."""
        if cached:
            q, k, v = self.c_attention(x).chunk(3, dim=-1)
        else:
            k, q, v = self.c_attention(x).chunk(3, dim=-1)
        return self.attend(q, k, v)


class Spelled(_Packed):
    """Self-attention of (B, T, C), causal."""

    def __init__(self, n_embd, n_head):
        super().__init__(n_embd, n_head)
        self.qkv = self.c_attention
        del self.c_attention

    def forward(self, x):
        """Wrong on purpose: the name spells another order than that of the code."""
        k, q, v = self.qkv(x).chunk(3, dim=-1)
        return self.attend(q, k, v)


class HeadByHead(_Packed):
    """Self-attention of (B, T, C), causal; each head has its q, k and v next to each other."""

    def forward(self, x):
        """Attend."""
        whole = self.c_attention(x).unflatten(-1, (self.n_head, -1))
        return self.attend(*(each.flatten(-2) for each in whole.chunk(3, dim=-1)))


class SaysPartsFirst(HeadByHead):
    """Self-attention of (B, T, C), causal; wrong on purpose.

    Of the 3 C output features the first C are the queries, the next C the keys and the last C the
    values.
    """


class SaysAsTorch(HeadByHead):
    """Self-attention of (B, T, C), causal; wrong on purpose.

    ``c_attention`` is laid out as in ``nn.MultiheadAttention``.
    """
