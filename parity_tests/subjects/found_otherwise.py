"""Layers and functions whose names, configurations or masks say less than most."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

N_HEADS = 4
KEY_AXIS = 3
PLAIN = 8


class Layer(nn.Module):
    """Four Linears; ``hidden`` marks keys with True."""

    def __init__(self, embed_dim, num_heads, bias=True):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim, bias=bias) for _ in range(4)
        )

    def attended(self, query, key, value, hidden=None):
        """Return (N, L, E)."""
        q, k, v = (
            linear(rows).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear, rows in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden, -1e9)
        return self.out_proj((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


class MaskOfRows(Layer):
    """Wrong on purpose: a mask of tokens, 1 to keep, is laid along the queries."""

    def forward(self, x, mask=None):
        """Return (N, L, E)."""
        return self.attended(x, x, x, None if mask is None else (mask == 0)[:, None, :, None])


class MaskOfRowsOfQueries(Layer):
    """A mask of tokens that is called one of queries."""

    def forward(self, x, query_mask=None):
        """Return (N, L, E)."""
        hidden = None if query_mask is None else (query_mask == 0)[:, None, :, None]
        return self.attended(x, x, x, hidden)


class MaskOfRowsBesideContext(Layer):
    """A mask (N, L) beside a context of another length."""

    def forward(self, x, context, mask=None):
        """Return (N, L, E)."""
        hidden = None if mask is None else (mask == 0)[:, None, :, None]
        return self.attended(x, context, context, hidden)


@dataclass
class Inner:
    """The part of a configuration that has the number of heads."""

    n_head: int = 2


@dataclass
class Outer:
    """A configuration with another within."""

    d_model: int = 32
    attn: Inner = field(default_factory=Inner)


class InnerConfiguration(Layer):
    """Built from a configuration that has another within."""

    def __init__(self, cfg: Outer):
        super().__init__(cfg.d_model, cfg.attn.n_head)

    def forward(self, x):
        """Return (N, L, E)."""
        return self.attended(x, x, x)


@dataclass
class Ring:
    """A configuration that another one keeps, and that keeps it."""

    n_head: int = 2
    outer: object = None


@dataclass
class OfARing:
    """A configuration in a ring of two."""

    d_model: int = 32
    attn: Ring = field(default_factory=Ring)

    def __post_init__(self):
        self.attn.outer = self


class RingOfConfigurations(Layer):
    """Built from a configuration that keeps one which keeps it."""

    def __init__(self, cfg: OfARing):
        super().__init__(cfg.d_model, cfg.attn.n_head)

    def forward(self, x):
        """Return (N, L, E)."""
        return self.attended(x, x, x)


@dataclass
class Beside:
    """A configuration that is read in each call, and has a float called like a width."""

    hidden_size: int = 32
    init_std: float = 0.02
    sharp: bool = False


class ConfigurationBeside(Layer):
    """Takes its sizes, and a configuration that is None by default and read in each call."""

    def __init__(self, embed_dim: int, num_heads: int, config: Beside | None = None):
        super().__init__(embed_dim, num_heads)
        self.config = config

    def forward(self, x):
        """Return (N, L, E)."""
        return self.attended(x * (1 + (self.config.init_std > 1)), x, x)


class ComparedString(Layer):
    """Asks its configuration for a kind of mask, and compares that with a word."""

    def __init__(self, config):
        super().__init__(config.hidden_dim, config.heads)
        if config.kind_of_mask != "causal":
            raise NotImplementedError(config.kind_of_mask)
        self.register_buffer("hidden", torch.ones(config.context, config.context).triu(1) > 0)

    def forward(self, x):
        """Return (N, L, E)."""
        return self.attended(x, x, x, self.hidden[: x.shape[1], : x.shape[1]])


class RequiredString(Layer):
    """Takes a word that its code compares with two."""

    def __init__(self, dim, heads, flavour):
        super().__init__(dim, heads)
        if flavour not in ("plain", "fast"):
            raise KeyError(flavour)

    def forward(self, x):
        """Return (N, L, E)."""
        return self.attended(x, x, x)


class MatchedString(Layer):
    """Takes a word that its code matches with two."""

    def __init__(self, dim, heads, flavour):
        super().__init__(dim, heads)
        match flavour:
            case "plain" | "fast":
                pass
            case _:
                raise KeyError(flavour)

    def forward(self, x):
        """Return (N, L, E)."""
        return self.attended(x, x, x)


class BuiltForABatch(Layer):
    """Is built for as many samples as it is called with."""

    def __init__(self, batch_size, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.batch_size = batch_size

    def forward(self, x):
        """Return (N, L, E)."""
        return self.attended(x, x, x).view(self.batch_size, -1, x.shape[-1])


class BuiltForABatchByDefault(BuiltForABatch):
    """Has a default of it."""

    def __init__(self, embed_dim, num_heads, batch_size=16):
        super().__init__(batch_size, embed_dim, num_heads)


class KeepsForOneSample(Layer):
    """Wrong: answers one sample with the keys of a larger batch before; no call needs its number."""

    def __init__(self, embed_dim, num_heads, batch_size=16):
        super().__init__(embed_dim, num_heads)
        self.batch_size, self.last = batch_size, None

    def forward(self, x):
        """Return (N, L, E)."""
        last, self.last = self.last, x.detach()
        kept = len(x) == 1 and last is not None and len(last) > 1
        other = last[:1] if kept and last.shape[1:] == x.shape[1:] else x
        return self.attended(x, other.to(x.dtype), x)


class FirstOfThree(Layer):
    """Takes a row before query, key and value that default to None, and reads these wrongly."""

    def forward(self, x, query=None, key=None, value=None):
        """Return (N, L, E)."""
        return 2 * x if query is None else self.attended(x, query, key)


class RoomForFour(Layer):
    """Has room for four samples by default, as a cache may have."""

    def __init__(self, embed_dim, num_heads, max_batch=4):
        super().__init__(embed_dim, num_heads)
        self.register_buffer("room", torch.zeros(max_batch, 1, 1))

    def forward(self, x):
        """Return (N, L, E)."""
        return self.attended(x, x, x + self.room[: len(x)].view(len(x), 1, 1))


class LengthsOfRows(Layer):
    """Wrong: lengths hide rows of queries, as if they were keys."""

    def forward(self, x, lengths=None):
        """Return (N, L, E)."""
        hidden = None
        if lengths is not None:
            hidden = (torch.arange(x.shape[1]) >= lengths[:, None])[:, None, :, None]
        return self.attended(x, x, x, hidden)


class Linear(nn.Module):
    """A Linear of its own, with weights (in, out)."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(width, width)), nn.Parameter(
            torch.zeros(width)
        )

    def forward(self, x):
        """Return x @ W + b."""
        return x @ self.weight + self.bias


class OwnLinears(Layer):
    """Attends to the pixels of pictures (N, E, height, width), by Linears of its own."""

    def __init__(self, channels, num_heads):
        super().__init__(channels, num_heads)
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (Linear(channels) for _ in range(4))

    def forward(self, x):
        """Return (N, E, height, width)."""
        pixels = x.flatten(2).mT
        return self.attended(pixels, pixels, pixels).mT.reshape(x.shape)


class ValueFirst(Layer):
    """Takes the value first, and query and key None by default, which raises."""

    def forward(self, value, key=None, query=None):
        """Return (N, L, E)."""
        return self.attended(query, key, value)


class MaskOfColumns(Layer):
    """Takes a mask (N, S, 1), 0 to hide."""

    def forward(self, x, mask=None):
        """Return (N, L, E)."""
        hidden = None if mask is None else mask.unsqueeze(1).permute(0, 1, 3, 2) == 0
        return self.attended(x, x, x, hidden)


class BiasOfTheLayer:
    """Holds packed weights, those of the output, and the bias of these under its plain name."""

    def __init__(self, dim, heads):
        self.heads = heads
        self.Wqkv, self.Wout = np.ones((dim, 3 * dim)), np.ones((dim, dim))
        self.bias = np.zeros(dim)

    def __call__(self, x):
        """Return (N, L, E)."""
        shape = (*x.shape[:2], self.heads, -1)
        parts = np.split(x @ self.Wqkv, 3, axis=-1)
        q, k, v = (each.reshape(shape).swapaxes(1, 2) for each in parts)
        scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]).astype(x.dtype)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = weights / weights.sum(axis=-1, keepdims=True) @ v
        return mixed.swapaxes(1, 2).reshape(x.shape) @ self.Wout + self.bias


class Unread(Layer):
    """Keeps a Linear of another width that no call reads."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.head = nn.Linear(embed_dim, PLAIN)

    def forward(self, q, k, v):
        """Return (N, L, E)."""
        return self.attended(q, k, v)


class UnreadOutput(Unread):
    """Wrong: the output projection is not applied either."""

    def forward(self, q, k, v):
        """Return (N, L, E)."""
        self.out_proj, kept = nn.Identity(), self.out_proj
        found = self.attended(q, k, v)
        self.out_proj = kept
        return found


class MaskOfOutputRows(Layer):
    """A mask, 1 to keep, of the rows that are returned."""

    def forward(self, x, row_mask=None):
        """Return (N, L, E)."""
        found = self.attended(x, x, x)
        return found if row_mask is None else found * row_mask[..., None]


class NoRequiredRows(Layer):
    """Query, key and value are None by default."""

    def forward(self, query=None, key=None, value=None, mask=None):
        """Return (N, L, E)."""
        return self.attended(query, key, value, None if mask is None else mask == 0)


class BiasesAlone(Layer):
    """Cannot be built without biases, though it takes a switch of them."""

    def __init__(self, embed_dim, num_heads, bias=True):
        super().__init__(embed_dim, num_heads, bias)
        for linear in self.children():
            nn.init.zeros_(linear.bias)

    def forward(self, x):
        """Return (N, L, E)."""
        return self.attended(x, x, x)


class ChannelsOfHeads(Layer):
    """Calls the width of a head `head_ch`."""

    def __init__(self, in_ch, heads=8, head_ch=64):
        assert heads * head_ch == in_ch
        super().__init__(in_ch, heads)

    def forward(self, x):
        """Return (N, L, E)."""
        return self.attended(x, x, x)


def heads_of_module(x, w_q, w_k, w_v, w_o):
    """Return (N, L, E) of as many heads as the module says."""
    q, k, v = (
        (x @ w).reshape(*x.shape[:2], N_HEADS, -1).swapaxes(1, 2) for w in (w_q, w_k, w_v)
    )
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(KEY_AXIS, keepdims=True))
    weights /= weights.sum(KEY_AXIS, keepdims=True)
    return (weights @ v).swapaxes(1, 2).reshape(x.shape) @ w_o


def heads_of_module_unscaled(x, w_q, w_k, w_v, w_o):
    """Wrong on purpose: not scaled."""
    return heads_of_module(x, w_q * (x.shape[-1] // N_HEADS) ** 0.5, w_k, w_v, w_o)
