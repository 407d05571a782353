"""Attentions with one array in the place of another, or an output in another order; right twins."""

from __future__ import annotations

import torch
from torch import nn


def _attend(query, key, value):
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    return scores.softmax(-1) @ value


def reversed_channels(query, key, value):
    """The channels of v in reverse order."""
    return _attend(query, key, value.flip(-1))


def reversed_twice(query, key, value):
    """The channels of v in reverse order, and those of the output again."""
    return _attend(query, key, value.flip(-1)).flip(-1)


def rows_of_one_list(query, key, value):
    """All rows are written into one, of which the last stays."""
    rows = _attend(query, key, value)
    return rows[..., -1:, :].expand(rows.shape).clone()


def axes_by_size(query, key, value, num_heads):
    """Attention of (batch, heads, rows, width), or of (batch, rows, heads, width) by their number."""
    moved = [x.transpose(1, 2) if x.shape[2] == num_heads else x for x in (query, key, value)]
    rows = _attend(*moved)
    return rows.transpose(1, 2) if query.shape[2] == num_heads else rows


def without_heads(query, key, value, num_heads):
    """The number of heads is not read."""
    return _attend(query, key, value)


def transposed(query, key, value):
    """The scores are transposed where L = S."""
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    square = scores.shape[-1] == scores.shape[-2]
    return (scores.transpose(-1, -2) if square else scores).softmax(-1) @ value


def value_added(query, key, value):
    """v is added to k."""
    return _attend(query, key + value, value)


def unit_values(query, key, value):
    """v is divided by its norm."""
    return _attend(query, key, value / value.norm(dim=-1, keepdim=True))


def cosines(query, key, value):
    """The scores are cosines."""
    query, key = (x / x.norm(dim=-1, keepdim=True) for x in (query, key))
    return (query @ key.transpose(-1, -2)).softmax(-1) @ value


def normalised_keys(query, key, value):
    """k is divided by its root mean square."""
    return _attend(query, key / key.square().mean(dim=-1, keepdim=True).sqrt(), value)


def sorted_batch(q, k, v, num_heads, lengths):
    """The samples by length, put back by their order in place of its inverse.

    q is (N, L, E), k and v are (N, S, E); ``lengths`` is an int tensor (N,), the number of valid
    keys of each sample (1 <= lengths[i] <= S).
    """
    return _by_length(q, k, v, num_heads, lengths, lambda order: order)


def sorted_back(q, k, v, num_heads, lengths):
    """The samples by length, put back by the inverse of their order.

    q is (N, L, E), k and v are (N, S, E); ``lengths`` is an int tensor (N,), the number of valid
    keys of each sample (1 <= lengths[i] <= S).
    """
    return _by_length(q, k, v, num_heads, lengths, torch.argsort)


def _by_length(q, k, v, num_heads, lengths, back):
    lengths = torch.as_tensor(lengths)
    order = torch.argsort(lengths, descending=True)
    done = []
    for n in order.tolist():
        keys = int(lengths[n])
        heads = [x.unflatten(-1, (num_heads, -1)).transpose(0, 1)
                 for x in (q[n], k[n, :keys], v[n, :keys])]  # fmt: skip
        done.append(_attend(*heads).transpose(0, 1).flatten(-2))
    return torch.stack(done)[back(order)]


class QueryAlone(nn.Module):
    """Where all shapes are equal k and v are projected from the query."""

    def __init__(self, embed_dim, num_heads):
        """Make the four projections."""
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def _inputs(self, query, key, value):
        return (query, query, query) if query.shape == key.shape else (query, key, value)

    def _project(self, query, key, value):
        projections = (self.q_proj, self.k_proj, self.v_proj)
        inputs = zip(projections, self._inputs(query, key, value), strict=True)
        return (p(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p, x in inputs)

    def _merge(self, heads):
        return self.out_proj(heads.transpose(1, 2).flatten(-2))

    def forward(self, query, key, value):
        """Return (N, L, E) of (N, L, E) and (N, S, E)."""
        return self._merge(_attend(*self._project(query, key, value)))


class OwnInputs(QueryAlone):
    """q, k and v are each projected from their own input."""

    def _inputs(self, query, key, value):
        return query, key, value


class BareValue(OwnInputs):
    """Of one key the value is given to the output projection as it comes."""

    def forward(self, query, key, value):
        """Return (N, L, E) of (N, L, E) and (N, S, E)."""
        if key.shape[1] == 1:
            return self.out_proj(value.expand(query.shape))
        return super().forward(query, key, value)


class BareHead(OwnInputs):
    """The output of one head is not projected."""

    def _merge(self, heads):
        merged = heads.transpose(1, 2).flatten(-2)
        return self.out_proj(merged) if self.num_heads > 1 else merged
