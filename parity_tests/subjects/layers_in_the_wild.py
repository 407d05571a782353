"""Layers of torch in the forms that well-known code has: packed, from a configuration, causal."""

from __future__ import annotations

import torch
from torch import nn


def attend(q, k, v, heads, hidden=None, scaled=True):
    """Return softmax(q k^T / sqrt(D)) v of (N, L, E) rows, heads side by side."""
    q, k, v = (rows.unflatten(-1, (heads, -1)).transpose(1, 2) for rows in (q, k, v))
    logits = q @ k.mT / (q.shape[-1] ** 0.5 if scaled else 1)
    if hidden is not None:
        logits = logits.masked_fill(hidden, -torch.inf)
    return (logits.softmax(dim=-1) @ v).transpose(1, 2).flatten(-2)


def later(rows):
    """Return what a row must not see: (L, L), True behind the diagonal."""
    return torch.ones(rows.shape[1], rows.shape[1], dtype=torch.bool).triu(1)


class ClonedLinears(nn.Module):
    """Heads first, a list of four Linears, as in an annotated paper; a mask (N or 1, L or 1, S)."""

    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.h = h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key, value, mask=None):
        """Return (N, L, E)."""
        rows = [linear(x) for linear, x in zip(self.linears, (query, key, value), strict=False)]
        hidden = None if mask is None else mask.unsqueeze(1) == 0
        return self.linears[3](attend(*rows, self.h, hidden))


class Packed(nn.Module):
    """One Linear without bias for all three, as vision models have it."""

    scaled = True

    def __init__(self, dim, num_heads=8, qkv_bias=False, attn_drop=0.0, proj_drop=0.0):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.attn_drop, self.proj_drop = nn.Dropout(attn_drop), nn.Dropout(proj_drop)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.proj(attend(q, k, v, self.num_heads, scaled=self.scaled))


class PackedUnscaled(Packed):
    """Wrong on purpose: the logits are not scaled."""

    scaled = False


class HeadByHead(Packed):
    """The rows of each head lie together in the packed Linear: q, k and v of the first, and so on."""

    axis = -2

    def forward(self, x):
        """Return (N, L, E)."""
        shape = (self.num_heads, 3, -1) if self.axis == -2 else (self.num_heads, -1, 3)
        parts = self.qkv(x).unflatten(-1, shape).unbind(dim=self.axis)
        return self.proj(attend(*(part.flatten(-2) for part in parts), self.num_heads))


class ColumnByColumn(HeadByHead):
    """q, k and v alternate column by column."""

    axis = -1


class ByColumns(nn.Module):
    """The first column of every head of q, k and v, then the second; the name says q, v, k."""

    def __init__(self, dim, heads=8, dim_head=None):
        super().__init__()
        self.heads = heads
        self.dim_head = dim_head or dim // heads
        self.to_qvk = nn.Linear(dim, 3 * heads * self.dim_head, bias=False)
        self.W_0 = nn.Linear(heads * self.dim_head, dim, bias=False)

    def rows(self, x):
        """Return q, k and v, each (N, L, D, H)."""
        return self.to_qvk(x).unflatten(-1, (self.dim_head, 3, self.heads)).unbind(dim=-2)

    def forward(self, x):
        """Return (N, L, E)."""
        rows = (each.mT.flatten(-2) for each in self.rows(x))
        return self.W_0(attend(*rows, self.heads))


class ByColumnsCrossed(ByColumns):
    """Wrong: values are weighed by queries and keys that stand in no order of the name."""

    def rows(self, x):
        """Return k, v and q."""
        q, k, v = super().rows(x)
        return k, v, q


class PackedInterleaved(ByColumns):
    """Wrong: a head has every H-th column of all queries, then of keys and of values."""

    def rows(self, x):
        """Return q, k and v, each (N, L, D, H)."""
        return self.to_qvk(x).unflatten(-1, (3, self.dim_head, self.heads)).unbind(dim=-3)


class Sequenced(nn.Module):
    """A width of heads of its own, the output in a Sequential."""

    def __init__(self, dim, heads=8, dim_head=64, dropout=0.0):
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(dim, 3 * heads * dim_head, bias=False)
        self.to_out = nn.Sequential(nn.Linear(heads * dim_head, dim), nn.Dropout(dropout))

    def forward(self, x):
        """Return (N, L, E)."""
        return self.to_out(attend(*self.to_qkv(x).chunk(3, dim=-1), self.heads))


class Crossed(nn.Module):
    """Keys and values of a context, from one Linear."""

    def __init__(self, query_dim, heads):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(query_dim, query_dim, bias=False)
        self.to_kv = nn.Linear(query_dim, 2 * query_dim, bias=False)
        self.to_out = nn.Linear(query_dim, query_dim)

    def forward(self, x, context):
        """Return (N, L, E)."""
        return self.to_out(attend(self.to_q(x), *self.to_kv(context).chunk(2, dim=-1), self.heads))


class Configured(nn.Module):
    """Sizes in a configuration; always causal."""

    hides = staticmethod(later)

    def __init__(self, config):
        super().__init__()
        width = config.n_embd
        self.n_head = config.n_head
        self.c_attn = nn.Linear(width, 3 * width, bias=config.bias)
        self.c_proj = nn.Linear(width, width, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("bias", torch.ones(config.block_size, config.block_size).tril())

    def forward(self, x):
        """Return (N, L, E)."""
        parts = self.c_attn(x).chunk(3, dim=-1)
        return self.c_proj(attend(*parts, self.n_head, self.hides(x)))


class CausalShifted(Configured):
    """Wrong on purpose: a row sees one key of the future."""

    hides = staticmethod(lambda x: later(x).triu(2))


class WithContextLength(nn.Module):
    """Separate Linears, causal up to a length that is known at the start."""

    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.num_heads = num_heads
        self.W_query, self.W_key, self.W_value = (
            nn.Linear(d_in, d_out, bias=qkv_bias) for _ in range(3)
        )
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        ones = torch.ones(context_length, context_length)
        self.register_buffer("mask", ones.triu(1).bool(), persistent=False)

    def forward(self, x):
        """Return (N, L, E)."""
        hidden = self.mask[: x.shape[1], : x.shape[1]]
        rows = self.W_query(x), self.W_key(x), self.W_value(x)
        return self.out_proj(attend(*rows, self.num_heads, hidden))


class ValuesFirst(nn.Module):
    """Values come first in the call."""

    def __init__(self, embed_size, heads):
        super().__init__()
        self.heads = heads
        self.values, self.keys, self.queries, self.fc_out = (
            nn.Linear(embed_size, embed_size) for _ in range(4)
        )

    def forward(self, values, keys, query, mask):
        """Return (N, L, E)."""
        rows = self.queries(query), self.keys(keys), self.values(values)
        return self.fc_out(attend(*rows, self.heads, mask == 0))


class OneHead(nn.Module):
    """q, k and v of one head."""

    def __init__(self, width, head_size):
        super().__init__()
        self.key, self.query, self.value = (
            nn.Linear(width, head_size, bias=False) for _ in range(3)
        )

    def forward(self, x):
        """Return (N, L, D)."""
        return attend(self.query(x), self.key(x), self.value(x), 1)


class ListOfHeads(nn.Module):
    """A list of heads, each with Linears of its own."""

    def __init__(self, n_embd, num_heads):
        super().__init__()
        self.heads = nn.ModuleList(OneHead(n_embd, n_embd // num_heads) for _ in range(num_heads))
        self.proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        """Return (N, L, E)."""
        return self.proj(torch.cat([head(x) for head in self.heads], dim=-1))


class HeadsOfAConfig(ListOfHeads):
    """The same, with its sizes from a configuration."""

    def __init__(self, cfg):
        super().__init__(cfg.n_embed, cfg.n_heads)


class SingleHead(nn.Module):
    """Knows no heads."""

    def __init__(self, d_in, d_out, qkv_bias=False):
        super().__init__()
        self.W_query, self.W_key, self.W_value = (
            nn.Linear(d_in, d_out, bias=qkv_bias) for _ in range(3)
        )

    def forward(self, x):
        """Return (N, L, E)."""
        return attend(self.W_query(x), self.W_key(x), self.W_value(x), 1)


class InATuple(nn.Module):
    """The output in a tuple, with weights and a cache behind it if they are asked for."""

    def __init__(self, config):
        super().__init__()
        self.heads = config.num_attention_heads
        width = config.hidden_size
        self.query, self.key, self.value, self.unify = (nn.Linear(width, width) for _ in range(4))

    def forward(self, hidden_states, attention_mask=None, use_cache=False):
        """Return ((N, L, E),)."""
        rows = (layer(hidden_states) for layer in (self.query, self.key, self.value))
        hidden = None if attention_mask is None else attention_mask[:, None, None] == 0
        return (self.unify(attend(*rows, self.heads, hidden)),)


class WithCache(InATuple):
    """Output, no weights, and what was computed on the way."""

    def forward(self, hidden_states):
        """Return ((N, L, E), None, rows)."""
        return *super().forward(hidden_states), None, hidden_states


class Tempered(Packed):
    """Has a parameter that no other layer has."""

    def __init__(self, dim, num_heads):
        super().__init__(dim, num_heads)
        self.temperature = nn.Parameter(torch.ones(1))

    def forward(self, x):
        """Return what it has times that."""
        return super().forward(x) * self.temperature


class NeedsMore(Packed):
    """Built from an argument that no trial can guess."""

    def __init__(self, dim, num_heads, rotary):
        super().__init__(dim, num_heads)
        self.rotary = rotary.cos()


class Broken(Packed):
    """Cannot be built."""

    def __init__(self, dim, num_heads):
        super().__init__(dim, num_heads)
        self.each = dim / 0


class BiasedRows(Packed):
    """Linears of q, k and v with biases, and an output without one."""

    def __init__(self, dim, num_heads, qkv_bias=False):
        super().__init__(dim, num_heads)
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim, bias=False)
