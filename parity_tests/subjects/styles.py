"""Layers and functions in the styles that people write them in; what is wrong says so."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

n_embd = 32
block_size = 64


def attend(q, k, v, mask=None):
    """Return softmax(q k^T / sqrt(D)) v of arrays (..., L, D)."""
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    return (scores if mask is None else scores.masked_fill(mask, -torch.inf)).softmax(-1) @ v


def split(x, heads):
    """Return (N, L, E) as (N, H, L, D)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge(x):
    """Return (N, H, L, D) as (N, L, E)."""
    return x.transpose(1, 2).flatten(2)


class Widths(nn.Module):
    """Sizes under rare names, an output under a name of its own."""

    def __init__(self, model_dimension, *, head_size=4):
        super().__init__()
        self.heads = head_size
        self.tokeys, self.toqueries, self.tovalues, self.unifyheads = (
            nn.Linear(model_dimension, model_dimension) for _ in range(4)
        )

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (
            split(f(x), self.heads) for f in (self.toqueries, self.tokeys, self.tovalues)
        )
        return self.unifyheads(merge(attend(q, k, v)))


@dataclass
class Settings:
    """A configuration of its own class."""

    emb_dim: int = 16
    n_heads: int = 2
    context_length: int = 8
    qkv_bias: bool = False
    style: str = "plain"


class Configured(nn.Module):
    """Built from a configuration that has an attribute of unknown meaning."""

    def __init__(self, settings: Settings, cfg: Settings = None):
        super().__init__()
        cfg = cfg or settings
        assert cfg.style == "plain"
        self.heads = cfg.n_heads
        self.qkv = nn.Linear(cfg.emb_dim, 3 * cfg.emb_dim, bias=cfg.qkv_bias)
        self.proj = nn.Linear(cfg.emb_dim, cfg.emb_dim, bias=False)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.heads) for each in self.qkv(x).chunk(3, -1))
        return self.proj(merge(attend(q, k, v)))


class Wrapped(nn.Module):
    """A Linear in a module of its own."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        """Return it applied."""
        return self.linear(x)


class KeywordsFirstAxis(nn.Module):
    """(L, N, E), by keyword only."""

    def __init__(self, heads, d_model):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (Wrapped(d_model) for _ in range(3))
        self.output = nn.Linear(d_model, d_model)

    def forward(self, *, query, key, value):
        """Return (L, N, E)."""
        q, k, v = self.query(query), self.key(key), self.value(value)
        rows = (split(each.transpose(0, 1), self.heads) for each in (q, k, v))
        return self.output(merge(attend(*rows)).transpose(0, 1))


class ListAndOne(nn.Module):
    """Three Linears in a list, and one."""

    def __init__(self, h, d_model):
        super().__init__()
        self.h = h
        self.layers = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(3))
        self.output_linear = nn.Linear(d_model, d_model)

    def forward(self, query, key, value):
        """Return (N, L, E)."""
        rows = zip(self.layers, (query, key, value), strict=True)
        return self.output_linear(merge(attend(*(split(f(x), self.h) for f, x in rows))))


class Bare(nn.Module):
    """Parameters with an axis of heads."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        shape = (n_heads, d_model, d_model // n_heads)
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.randn(shape)) for _ in range(3))
        self.W_O = nn.Parameter(torch.randn(n_heads, d_model // n_heads, d_model))
        self.b_Q, self.b_K, self.b_V = (
            nn.Parameter(torch.zeros(shape[::2])) for _ in range(3)
        )
        self.b_O = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (
            torch.einsum("nle,hed->nhld", x, w) + b[:, None]
            for w, b in ((self.W_Q, self.b_Q), (self.W_K, self.b_K), (self.W_V, self.b_V))
        )
        return torch.einsum("nhld,hde->nle", attend(q, k, v), self.W_O) + self.b_O


class Lazy(nn.Module):
    """Linears that learn their width at the first call."""

    def __init__(self, num_hiddens, num_heads, bias=False):
        super().__init__()
        self.heads = num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (
            nn.LazyLinear(num_hiddens, bias=bias) for _ in range(4)
        )

    def forward(self, queries, keys, values):
        """Return (N, L, E)."""
        rows = (self.W_q(queries), self.W_k(keys), self.W_v(values))
        return self.W_o(merge(attend(*(split(each, self.heads) for each in rows))))


class Grid(nn.Module):
    """(B, H, W, C), as in windows of images."""

    def __init__(self, dim, num_heads=8):
        super().__init__()
        self.heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        """Return (B, H, W, C)."""
        rows = self.qkv(x.flatten(1, 2)).chunk(3, -1)
        mixed = merge(attend(*(split(each, self.heads) for each in rows)))
        return self.proj(mixed).view(x.shape)


class Stacked(nn.Module):
    """(B, nodes, L, C), attending along L for each node, as layers of graphs and of blocks do."""

    scale = True

    def __init__(self, dim, num_heads=8):
        super().__init__()
        self.heads = num_heads
        self.c_q, self.c_kv = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
        self.c_proj = nn.Linear(dim, dim)

    def forward(self, x):
        """Return (B, nodes, L, C)."""
        rows = (self.c_q(x), *self.c_kv(x).chunk(2, -1))
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(2, 3) for each in rows)
        scores = q @ k.mT * (q.shape[-1] ** -0.5 if self.scale else 1)
        return self.c_proj((scores.softmax(-1) @ v).transpose(2, 3).flatten(3))


class StackedUnscaled(Stacked):
    """Wrong on purpose: no scale."""

    scale = False


class OneQueryASample(nn.Module):
    """One query (B, C) for the keys (B, L, C) of each sample: no layout of several queries."""

    def __init__(self, dim, num_heads=8):
        super().__init__()
        self.heads = num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, item, history):
        """Return (B, C)."""
        rows = (self.W_q(item), self.W_k(history), self.W_v(history))
        q, k, v = (
            each.view(item.size(0), -1, self.heads, each.size(-1) // self.heads).transpose(1, 2)
            for each in rows
        )
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        return self.W_o((weights @ v).transpose(1, 2).reshape(item.size(0), -1))


class OnlyMatrices(nn.Module):
    """(L, E) and nothing else."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.W_query = nn.Parameter(torch.rand(d_in, d_out))
        self.W_key = nn.Parameter(torch.rand(d_in, d_out))
        self.W_value = nn.Parameter(torch.rand(d_in, d_out))

    def forward(self, x):
        """Return (L, E)."""
        keys = x @ self.W_key
        scores = x @ self.W_query @ keys.T
        return (scores / keys.shape[-1] ** 0.5).softmax(-1) @ (x @ self.W_value)


class Normed(nn.Module):
    """A LayerNorm before, a residual behind."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.heads) for each in self.to_qkv(self.norm(x)).chunk(3, -1))
        return x + self.to_out(merge(attend(q, k, v)))


class MaskWanted(nn.Module):
    """Cannot do without its mask, True where a key is hidden."""

    def __init__(self, hidden_size, head_size=8):
        super().__init__()
        self.heads = head_size
        self.linear_q, self.linear_k, self.linear_v, self.output_layer = (
            nn.Linear(hidden_size, hidden_size, bias=False) for _ in range(4)
        )

    def forward(self, q, k, v, mask):
        """Return (N, L, E)."""
        rows = (self.linear_q(q), self.linear_k(k), self.linear_v(v))
        rows = (split(each, self.heads) for each in rows)
        return self.output_layer(merge(attend(*rows, mask=mask.unsqueeze(1))))


class Weightless(nn.Module):
    """Nothing but the attention of heads."""

    def forward(self, query, key, value):
        """Return (N, H, L, D)."""
        return attend(query, key, value)


class GlobalWidth(nn.Module):
    """Its width is a number of the module."""

    def __init__(self, num_heads, head_size):
        super().__init__()
        self.heads = num_heads
        self.qkv = nn.Linear(n_embd, 3 * num_heads * head_size)
        self.proj = nn.Linear(num_heads * head_size, n_embd)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x):
        """Return (N, L, E), causal."""
        q, k, v = (split(each, self.heads) for each in self.qkv(x).chunk(3, -1))
        hidden = self.tril[: x.shape[1], : x.shape[1]] == 0
        return self.proj(merge(attend(q, k, v, hidden)))


class ShortMask(nn.Module):
    """Causal by a mask of a default length, and without an output projection for one head."""

    def __init__(self, dim, heads=8, max_len=16):
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim, bias=False) if heads > 1 else nn.Identity()
        self.register_buffer("hidden", torch.ones(max_len, max_len).triu(1).bool())

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.heads) for each in self.to_qkv(x).chunk(3, -1))
        return self.to_out(merge(attend(q, k, v, self.hidden[: x.shape[1], : x.shape[1]])))


class NamedLongest(nn.Module):
    """Causal up to a length that is called as few call it."""

    first_hidden = 1

    def __init__(self, h_dim, max_T, n_heads):
        super().__init__()
        self.heads = n_heads
        self.q_net, self.k_net, self.v_net, self.proj_net = (
            nn.Linear(h_dim, h_dim) for _ in range(4)
        )
        hidden = torch.ones(max_T, max_T).triu(self.first_hidden).bool()
        self.register_buffer("hidden", hidden)

    def forward(self, x):
        """Return (N, L, E)."""
        length = x.shape[1]
        q, k, v = (split(net(x), self.heads) for net in (self.q_net, self.k_net, self.v_net))
        return self.proj_net(merge(attend(q, k, v, self.hidden[:length, :length])))


class UnnamedLongest(NamedLongest):
    """The same length under a name that says nothing."""

    def __init__(self, h_dim, ticks, n_heads):
        super().__init__(h_dim, ticks, n_heads)


class UnnamedLongestLoose(UnnamedLongest):
    """Wrong: every query sees the key behind it."""

    first_hidden = 2


def make_attention(head_dim, scale=None):
    """Return a function of q, k and v: no attention itself."""
    scale = head_dim**-0.5 if scale is None else scale
    return lambda q, k, v: (q @ k.mT * scale).softmax(-1) @ v
