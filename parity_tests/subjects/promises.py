"""Layers that are right only in less than their names and constructors promise."""

from __future__ import annotations

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.out = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def mixed(self, x, hidden=None):
        """Return (N, L, E), without the pairs that are ``hidden``."""
        q, k, v = (
            each(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class CausalSelfAttention(Layer):
    """Wrong: no key is hidden."""

    def forward(self, x):
        return self.mixed(x)


class CausalSelfAttentionOfConfig(Layer):
    """Wrong: the mask that it keeps is never read, and sizes alone are read of a configuration."""

    def __init__(self, config):
        super().__init__(config.n_embd, config.n_head)
        self.register_buffer("bias", torch.ones(config.block_size, config.block_size).tril())

    def forward(self, x):
        return self.mixed(x)


class MaskedSelfAttention(Layer):
    """Right: the mask that its name speaks of is passed."""

    def forward(self, x, mask=None):
        return self.mixed(x, mask)


class CausalByVisibility(Layer):
    """Right: what it takes says which keys are seen, in a way of its own."""

    def forward(self, x, visibility=None):
        hidden = None if visibility is None else visibility.rows()
        return self.mixed(x, hidden)


class CausalByConfig(Layer):
    """Right: its configuration decides, and says that it is not causal where it says nothing."""

    def __init__(self, config):
        super().__init__(config.n_embd, config.n_head)
        self.causal = getattr(config, "causal", False)

    def forward(self, x):
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return self.mixed(x, hidden if self.causal else None)


class CausalByBias(Layer):
    """Right: what is added to the scores may hide keys."""

    def forward(self, x, attn_bias=None):
        return self.mixed(x) if attn_bias is None else self.mixed(x, attn_bias.isneginf())


class CausalByWord(CausalByConfig):
    """Right: a word of its configuration decides."""

    def __init__(self, config):
        Layer.__init__(self, config.n_embd, config.n_head)
        self.causal = config.attention_mode == "causal"


class CausalByWindow(Layer):
    """Right: it is causal within a window."""

    def forward(self, x, window_size=-1):
        rows = torch.arange(x.shape[1])
        behind = rows[:, None] - rows
        return self.mixed(x, None if window_size < 0 else (behind < 0) | (behind > window_size))


class UncausalAttention(Layer):
    """Right: the name says that nothing is hidden."""

    def forward(self, x):
        return self.mixed(x)


class CausalInference(Layer):
    """Right: the name is that of a model of causes."""

    def forward(self, x):
        return self.mixed(x)


class AcausalAttention(Layer):
    """Right: the name says that nothing is hidden."""

    def forward(self, x):
        return self.mixed(x)


class CausalHiding(Layer):
    """Right: keys behind a query are hidden."""

    def forward(self, x):
        return self.mixed(x, torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1))


class Heads(nn.Module):
    """Attention of rows (N, L, E) that are projected already, by a method."""

    def __init__(self, dim_in, dim_out, num_heads=8):
        super().__init__()
        self.num_heads, self.dim_out = num_heads, dim_out
        self.projection = nn.Linear(dim_in, dim_out)

    def scale(self):
        return (self.dim_out // self.num_heads) ** -0.5

    def attend(self, q, k, v):
        q, k, v = (
            each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for each in (q, k, v)
        )
        return ((q @ k.mT * self.scale()).softmax(-1) @ v).transpose(1, 2).flatten(2)


class HeadsByWidth(Heads):
    """Wrong with several heads: the scale is that of one."""

    def scale(self):
        return self.dim_out**-0.5


class Head(nn.Module):
    by_input = False

    def __init__(self, d_in, d_out):
        super().__init__()
        self.W_query, self.W_key, self.W_value = (
            nn.Linear(d_in, d_out, bias=False) for _ in range(3)
        )

    def forward(self, x):
        q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)
        width = x.shape[-1] if self.by_input else k.shape[-1]
        return (q @ k.mT * width**-0.5).softmax(-1) @ v


class HeadByInput(Head):
    by_input = True


class OfHeads(nn.Module):
    """Right: a head is as wide as its second argument."""

    head = Head

    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.heads = nn.ModuleList([self.head(d_in, d_out) for _ in range(num_heads)])

    def forward(self, x):
        return torch.cat([head(x) for head in self.heads], dim=-1)


class OfHeadsByInput(OfHeads):
    """Wrong where a head is not as wide as the input: the scale is the input's."""

    head = HeadByInput
