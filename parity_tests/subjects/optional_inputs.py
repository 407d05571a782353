"""Layers whose keys and values may be left out, and layers of grouped queries; right and wrong."""

from __future__ import annotations

import torch
from torch import nn


def heads(rows, count):
    """Turn (N, L, E) into (N, H, L, D)."""
    return rows.unflatten(-1, (count, -1)).transpose(1, 2)


def attend(q, k, v):
    """Return (N, L, E)."""
    scores = q * q.shape[-1] ** -0.5 @ k.transpose(-1, -2)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Optional(nn.Module):
    """Self-attention if nothing else is given."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def _attend(self, query, key, value):
        rows = (self.q_proj(query), self.k_proj(key), self.v_proj(value))
        return self.out_proj(attend(*(heads(each, self.num_heads) for each in rows)))

    def forward(self, query, key=None, value=None):
        """Return (N, L, E)."""
        key = query if key is None else key
        return self._attend(query, key, key if value is None else value)


class OptionalIgnored(Optional):
    """Wrong on purpose: the value that is given is not used."""

    def forward(self, query, key=None, value=None):
        """Return (N, L, E)."""
        key = query if key is None else key
        return self._attend(query, key, key)


class OptionalValue(Optional):
    """The keys have to be given, the values need not."""

    def forward(self, query, key, value=None):
        """Return (N, L, E)."""
        return self._attend(query, key, key if value is None else value)


class OptionalValueIgnored(Optional):
    """Wrong on purpose: the value that is given is not used."""

    def forward(self, query, key, value=None):
        """Return (N, L, E)."""
        return self._attend(query, key, key)


class OptionalHeads(Optional):
    """What is called value has to have an axis of heads, and nothing is made of it."""

    def forward(self, query, key, value=None):
        """Return (N, L, E)."""
        if value is not None and value.dim() != 4:
            raise ValueError("value has to be (N, H, S, D)")
        return self._attend(query, key, key)


class OptionalOther(Optional):
    """Keys and values from an input whose name says nothing."""

    def forward(self, x, other=None):
        """Return (N, L, E)."""
        rows = x if other is None else other
        return self._attend(x, rows, rows)


class OptionalKey(Optional):
    """Keys and values from one input that is called key."""

    def forward(self, query, key=None):
        """Return (N, L, E)."""
        rows = query if key is None else key
        return self._attend(query, rows, rows)


class OptionalKeyIgnored(Optional):
    """Wrong on purpose: the values are those of the queries' rows."""

    def forward(self, query, key=None):
        """Return (N, L, E)."""
        rows = query if key is None else key
        values = query.repeat(1, 1 + rows.shape[1] // query.shape[1], 1)[:, : rows.shape[1]]
        return self._attend(query, rows, values)


class KeyOfEqualLength(Optional):
    """What is called key is no row of keys, and raises at other lengths: it is not tried."""

    def forward(self, query, key=None):
        """Return (N, L, E)."""
        shifted = query if key is None else query + 0 * key
        return self._attend(shifted, query, query)


class OptionalContext(Optional):
    """Keys and values from one context."""

    def forward(self, x, context=None):
        """Return (N, L, E)."""
        context = x if context is None else context
        return self._attend(x, context, context)


class OptionalContextIgnored(Optional):
    """Wrong on purpose: the context is used for values alone."""

    def forward(self, x, context=None):
        """Return (N, L, E)."""
        values = x if context is None else context
        return self._attend(x, x, values[:, : x.shape[1]])


class Grouped(nn.Module):
    """Fewer heads of keys and values than of queries; head h uses key head h // group."""

    def __init__(self, dim, n_heads, n_kv_heads=None):
        super().__init__()
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads or n_heads
        width = dim // n_heads * self.n_kv_heads
        self.wq, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(2))
        self.wk, self.wv = (nn.Linear(dim, width, bias=False) for _ in range(2))

    def repeated(self, rows):
        """Return one key head for every query head."""
        return rows.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)

    def forward(self, x):
        """Return (N, L, E)."""
        k, v = (heads(each, self.n_kv_heads) for each in (self.wk(x), self.wv(x)))
        return self.wo(attend(heads(self.wq(x), self.n_heads), self.repeated(k), self.repeated(v)))


class GroupedTiled(Grouped):
    """Wrong on purpose: key heads are repeated as a whole, so that head h uses h % kv_heads."""

    def repeated(self, rows):
        """Return key heads in the wrong order."""
        return rows.repeat(1, self.n_heads // self.n_kv_heads, 1, 1)


class GroupedByName(Grouped):
    """Right: the number of key heads has a name that is as often their size."""

    def __init__(self, hidden_size, num_heads, group_size):
        super().__init__(hidden_size, num_heads, group_size)


class GroupedByNameTiled(GroupedTiled):
    """Wrong on purpose: the same, with key heads repeated as a whole."""

    def __init__(self, hidden_size, num_heads, group_size):
        super().__init__(hidden_size, num_heads, group_size)


class GroupedMatrices(nn.Module):
    """Grouped queries with bare matrices, applied as X @ W, and heads of keys required."""

    def __init__(self, d_model, num_heads, num_kv_heads):
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        width = d_model // num_heads * num_kv_heads
        self.W_q, self.W_o = (nn.Parameter(torch.zeros(d_model, d_model)) for _ in range(2))
        self.W_k, self.W_v = (nn.Parameter(torch.zeros(d_model, width)) for _ in range(2))

    def forward(self, x):
        """Return (N, L, E)."""
        k, v = (heads(x @ each, self.num_kv_heads) for each in (self.W_k, self.W_v))
        k, v = (self.repeated(each) for each in (k, v))
        return attend(heads(x @ self.W_q, self.num_heads), k, v) @ self.W_o

    def repeated(self, rows):
        """Return one key head for every query head."""
        return rows.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)


class GroupedMatricesTiled(GroupedMatrices):
    """Wrong on purpose: key heads are repeated as a whole."""

    def repeated(self, rows):
        """Return key heads in the wrong order."""
        return rows.repeat(1, self.num_heads // self.num_kv_heads, 1, 1)


class ContextOfEqualLengths(Optional):
    """Wrong on purpose: keys are split with the length of the queries, and raise at any other."""

    def forward(self, x, context):
        """Return (N, L, E)."""
        n, length, _ = x.shape
        rows = (self.q_proj(x), self.k_proj(context), self.v_proj(context))
        split = (each.view(n, length, self.num_heads, -1).transpose(1, 2) for each in rows)
        return self.out_proj(attend(*split))


class SwitchedContext(Optional):
    """Right: a switch of the constructor says that keys and values are made of a context."""

    def __init__(self, embed_dim, num_heads, *, cross_attn=False):
        super().__init__(embed_dim, num_heads)
        self.cross_attn = cross_attn

    def forward(self, x, y=None):
        """Return (N, L, E)."""
        rows = y if self.cross_attn and y is not None else x
        return self._attend(x, rows, rows)


class SwitchedContextIgnored(SwitchedContext):
    """Wrong on purpose: the context is not used, whatever the switch says."""

    def forward(self, x, y=None):
        """Return (N, L, E)."""
        return self._attend(x, x, x)


def decode(q, k_cache, v_cache, lengths):
    """Right: (N, H, L, D), keys and values that were kept, the first ``lengths`` of them filled."""
    scores = q @ k_cache.transpose(-1, -2) * q.shape[-1] ** -0.5
    filled = torch.arange(k_cache.shape[-2]) < lengths[:, None, None, None]
    return scores.masked_fill(~filled, -torch.inf).softmax(-1) @ v_cache


def decode_one_more(q, k_cache, v_cache, lengths):
    """Wrong on purpose: the key behind the filled ones is seen."""
    return decode(q, k_cache, v_cache, lengths + 1)


class TwoPaths(nn.Module):
    """One projection, whose rows are those of q, k and v of each head; right."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query_key_value = nn.Linear(embed_dim, 3 * embed_dim)
        self.dense = nn.Linear(embed_dim, embed_dim)

    def _parts(self, rows):
        parts = self.query_key_value(rows).unflatten(-1, (self.num_heads, 3, -1))
        return [each.transpose(1, 2) for each in parts.unbind(3)]

    def _other(self, rows):
        return self._parts(rows)

    def forward(self, hidden_states, encoder_hidden_states=None):
        """Return (N, L, E)."""
        q, k, v = self._parts(hidden_states)
        if encoder_hidden_states is not None:
            q, (_, k, v) = self._other(hidden_states)[0], self._other(encoder_hidden_states)
        scores = q * q.shape[-1] ** -0.5 @ k.transpose(-1, -2)
        return self.dense((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class TwoOrders(TwoPaths):
    """Wrong on purpose: beside an encoder the rows are all of q, then all of k, then all of v."""

    def _other(self, rows):
        return [heads(each, self.num_heads) for each in self.query_key_value(rows).chunk(3, -1)]
