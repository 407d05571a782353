"""Layers whose call has more than rows and a mask: a map's sizes, a pair of keys and values."""

from __future__ import annotations

import torch
from torch import nn


def attend(q, k, v, hidden=None, scale=None):
    """Return heads (N, H, L, D)."""
    scores = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores.softmax(-1) @ v


class _Layer(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v, self.proj = (nn.Linear(dim, dim) for _ in range(4))

    def heads(self, rows):
        """Return (N, H, L, D)."""
        return rows.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def joined(self, heads):
        """Return (N, L, E)."""
        return self.proj(heads.transpose(1, 2).flatten(2))


class OfMap(_Layer):
    """Right: rows of the positions of a map, whose height and width come with them."""

    scale = None

    def forward(self, x, H, W):
        """Return (N, H * W, E)."""
        if x.shape[1] != H * W:
            raise ValueError("the map has another number of positions than there are rows")
        q, k, v = (self.heads(linear(x)) for linear in (self.q, self.k, self.v))
        return self.joined(attend(q, k, v, scale=self.scale))


class OfMapUnscaled(OfMap):
    """Wrong: its scores are not scaled."""

    scale = 1.0


class SharedPair(_Layer):
    """Right: always causal, and takes the keys and values of another layer if it is built for."""

    alone = True

    def __init__(self, dim, num_heads, share_kv=False):
        super().__init__(dim, num_heads)
        self.share_kv = share_kv

    def forward(self, x, kv=None):
        """Return (N, L, E), and keys and values."""
        if self.share_kv:
            keys, values = kv
        else:
            keys, values = self.heads(self.k(x)), self.heads(self.v(x))
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return self.joined(attend(self.heads(self.q(x)), keys, values, later)), (keys, values)


class ContextUnread(_Layer):
    """Wrong: its context is taken, and the rows themselves are attended."""

    def forward(self, x, context=None):
        """Return (N, L, E)."""
        del context
        q, k, v = (self.heads(linear(x)) for linear in (self.q, self.k, self.v))
        return self.joined(attend(q, k, v))


class MaskFlag(nn.Module):
    """Right: without projections; a switch says whether the mask, an object, is read."""

    scale = None

    def __init__(self, mask_flag=True):
        super().__init__()
        self.mask_flag = mask_flag

    def forward(self, queries, keys, values, attn_mask=None):
        """Return (N, L, H, D), and None."""
        hidden = None
        if self.mask_flag and attn_mask is not None:
            hidden = attn_mask.mask
        q, k, v = (rows.transpose(1, 2) for rows in (queries, keys, values))
        return attend(q, k, v, hidden, self.scale).transpose(1, 2), None


class MaskFlagUnscaled(MaskFlag):
    """Wrong: its scores are not scaled."""

    scale = 1.0


class SamplesLast(_Layer):
    """Right: rows (L, N, E), and a mask (L, S, N) of 1 for keys that are seen."""

    def hidden(self, mask):
        """Return what is hidden, (N, 1, L, S)."""
        return (mask == 0).permute(2, 0, 1)[:, None]

    def forward(self, query, key, value, mask=None):
        """Return (L, N, E)."""
        if mask is not None and (mask.dim() != 3 or mask.shape[:2] != (len(query), len(key))):
            raise ValueError("the mask should be (L, S, N)")
        if mask is not None and mask.shape[2] not in {1, query.shape[1]}:
            raise ValueError("the mask should have one sample or all")
        q, k, v = (
            self.heads(linear(rows.transpose(0, 1)))
            for linear, rows in ((self.q, query), (self.k, key), (self.v, value))
        )
        hidden = None if mask is None else self.hidden(mask)
        return self.joined(attend(q, k, v, hidden)).transpose(0, 1)


class PaddingSamplesLast(_Layer):
    """Right: rows (L, N, E), and padding (S, N), of which True hides."""

    def hidden(self, padding):
        """Return what is hidden, (N, 1, 1, S)."""
        return padding.t()[:, None, None]

    def forward(self, query, key, value, src_mask=None):
        """Return (L, N, E)."""
        q, k, v = (
            self.heads(linear(rows.transpose(0, 1)))
            for linear, rows in ((self.q, query), (self.k, key), (self.v, value))
        )
        hidden = None if src_mask is None else self.hidden(src_mask)
        return self.joined(attend(q, k, v, hidden)).transpose(0, 1)


class PaddingSamplesLastKeepsFirst(PaddingSamplesLast):
    """Wrong: the first key is seen whatever the padding says."""

    def hidden(self, padding):
        """Return what is hidden behind the first key."""
        return super().hidden(padding) & (torch.arange(len(padding)) > 0)


class SamplesLastKeepsFirst(SamplesLast):
    """Wrong: the first key is seen whatever the mask says."""

    def hidden(self, mask):
        """Return what is hidden behind the first key."""
        return super().hidden(mask) & (torch.arange(mask.shape[1]) > 0)


def channels_of_heads(query, key, value):
    """Return heads (N, D, H, L), of such: right."""
    scores = torch.einsum("ndhl,ndhs->nhls", query, key) / query.shape[1] ** 0.5
    return torch.einsum("nhls,ndhs->ndhl", scores.softmax(-1), value)


def channels_of_heads_by_heads(query, key, value):
    """Return the same with scores divided by the root of the number of heads: wrong."""
    scores = torch.einsum("ndhl,ndhs->nhls", query, key) / query.shape[2] ** 0.5
    return torch.einsum("nhls,ndhs->ndhl", scores.softmax(-1), value)


def _heads_first(query, key, value, blocked, scale):
    scores = torch.einsum("hnld,hnsd->hnls", query, key) * scale
    if blocked is not None:
        scores = scores.masked_fill(blocked, float("-inf"))
    return torch.einsum("hnls,hnsd->hnld", scores.softmax(-1), value)


def heads_first(query, key, value, blocked=None):
    """Attend by head: right.

    query    (h, n, l, d), heads before samples
    key      (h, n, s, d)
    value    (h, n, s, c)
    blocked  boolean, (n, l, s), the same for all heads.
             True: this key must NOT be looked at.
    """
    return _heads_first(query, key, value, blocked, query.shape[-1] ** -0.5)


def heads_first_by_names(query, key, value, keep=None, scale=None, return_weights=False):
    """Attend by head, with names of torch's function: right.

    query (H, N, L, D), key (H, N, S, D), value (H, N, S, Dv)
    keep  optional boolean (N, S), True for the keys that take part

    Returns the output (H, N, L, Dv); with return_weights=True the pair (output, weights), where the
    weights are stored keys first, (H, N, S, L).
    """
    scores = torch.einsum("hnld,hnsd->hnls", query, key)
    scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)
    if keep is not None:
        if keep.shape != (key.shape[1], key.shape[2]):
            raise ValueError("keep is of samples and keys")
        scores = scores.masked_fill(~keep[:, None], float("-inf"))
    weights = scores.softmax(-1)
    output = torch.einsum("hnls,hnsd->hnld", weights, value)
    return (output, weights.mT) if return_weights else output


def heads_first_for_samples(query, key, value, blocked=None):
    """Attend by head with a mask of each head where one of each sample should be: wrong.

    query    (h, n, l, d), heads before samples
    key      (h, n, s, d)
    value    (h, n, s, c)
    blocked  boolean, (n, l, s), the same for all heads.
             True: this key must NOT be looked at.
    """
    first = None if blocked is None else blocked[:1]
    return _heads_first(query, key, value, first, query.shape[-1] ** -0.5)


def heads_first_by_samples(query, key, value):
    """Return the attention of (H, N, L, D) with scores divided by the root of N: wrong."""
    return _heads_first(query, key, value, None, query.shape[1] ** -0.5)


class Columns(_Layer):
    """Right: attention along the rows of every column of a table (rows, columns, N, E)."""

    scale = None

    def forward(self, x):
        """Return (rows, columns, N, E)."""
        columns = x.flatten(1, 2).transpose(0, 1)
        q, k, v = (self.heads(linear(columns)) for linear in (self.q, self.k, self.v))
        out = self.joined(attend(q, k, v, scale=self.scale))
        return out.transpose(0, 1).unflatten(1, x.shape[1:3])


class ColumnsUnscaled(Columns):
    """Wrong: its scores are not scaled."""

    scale = 1.0


class PrivateNames(nn.Module):
    """Right: packed projections under a private name."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.__qkv = nn.Linear(dim, 3 * dim)
        self.__fc = nn.Linear(dim, dim)

    def heads(self, rows):
        """Return (N, H, L, D)."""
        return rows.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = map(self.heads, self.__qkv(x).chunk(3, dim=-1))
        return self.__fc(attend(q, k, v).transpose(1, 2).flatten(2))


class PrivateNamesUnmoved(PrivateNames):
    """Wrong: heads are cut without their axis being moved."""

    def heads(self, rows):
        """Return (N, H, L, D) of mixed positions and heads."""
        return rows.reshape(len(rows), self.num_heads, rows.shape[1], -1)


class Drawing(_Layer):
    """Right: draws what is dropped out from a generator that every call requires."""

    scale = None

    def forward(self, x, rng):
        """Return (N, L, E)."""
        kept = torch.from_numpy(rng.random(x.shape[:2]) >= 0).to(x)[:, None, :, None]
        q, k, v = (self.heads(linear(x)) for linear in (self.q, self.k, self.v))
        return self.joined(attend(q, k, v, scale=self.scale) * kept)


class DrawingUnscaled(Drawing):
    """Wrong: its scores are not scaled."""

    scale = 1.0


def drawn_rows(q, k, v, rng):
    """Right: one head, of a generator that every call requires."""
    return attend(q, k, v) * torch.from_numpy(rng.random(q.shape[:2]) >= 0).to(q)[..., None]
