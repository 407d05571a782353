"""Attentions whose call has torch's switch of the layout, ``batch_first``."""

import torch
from torch import nn


def by_samples(q, k, v, n_heads, bias=None, batch_first=False):
    """Right in both layouts; rows are made contiguous, samples first or not."""
    if batch_first:
        q, k, v = (x.transpose(0, 1).contiguous() for x in (q, k, v))
    output = _over_rows(q, k, v, n_heads, bias)
    return output.transpose(0, 1) if batch_first else output


def raises_by_samples(q, k, v, n_heads, bias=None, batch_first=False):
    """Wrong: samples first, one array is no view that its heads could be split off."""
    if batch_first:
        q, k, v = q.transpose(0, 1).contiguous(), k.transpose(0, 1), v.transpose(0, 1)
    output = _over_rows(q, k, v, n_heads, bias)
    return output.transpose(0, 1) if batch_first else output


def returns_rows_first(q, k, v, n_heads, bias=None, batch_first=False):
    """Wrong: the output has its rows first in either layout."""
    if batch_first:
        q, k, v = (x.transpose(0, 1).contiguous() for x in (q, k, v))
    return _over_rows(q, k, v, n_heads, bias)


def refuses_rows_first(q, k, v, n_heads, bias=None, batch_first=True):
    """Right by samples; rows first are refused by a sentence."""
    if not batch_first:
        raise NotImplementedError("rows come behind samples")
    return by_samples(q, k, v, n_heads, bias, batch_first=True)


class RefusesRowsFirst(nn.Module):
    """The same of a constructor."""

    def __init__(self, embed_dim, num_heads, batch_first=True):
        super().__init__()
        if not batch_first:
            raise ValueError("rows come behind samples")
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, query, key, value):
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        return self.out_proj(by_samples(q, k, v, self.num_heads, batch_first=True))


class RaisesRowsFirst(RefusesRowsFirst):
    """Wrong: rows first, its heads are split off an array that has no such view."""

    def __init__(self, embed_dim, num_heads, batch_first=True):
        super().__init__(embed_dim, num_heads)
        self.batch_first = batch_first

    def forward(self, query, key, value):
        if self.batch_first:
            return super().forward(query, key, value)
        by_sample = (x.transpose(0, 1).contiguous() for x in (query, key, value))
        rows = super().forward(*by_sample).transpose(0, 1)
        return rows.view(-1, rows.shape[-1]).view(rows.shape)


def _over_rows(q, k, v, n_heads, bias):
    """Return attention over (L, N, E); the bias is added to the scores."""
    rows, samples, width = q.shape

    def heads(x):
        return x.view(len(x), samples * n_heads, width // n_heads).transpose(0, 1)

    scores = heads(q) @ heads(k).mT / (width // n_heads) ** 0.5
    weights = torch.softmax(scores if bias is None else scores + bias, -1)
    return (weights @ heads(v)).transpose(0, 1).reshape(rows, samples, width)


def names_what_it_refuses(q, k, v, n_heads, bias=None, batch_first=True):
    """Right by samples; rows first raise by another exception that names the switch."""
    if not batch_first:
        raise RuntimeError("batch_first=False is not supported")
    return by_samples(q, k, v, n_heads, bias, batch_first=True)


def heads_before_rows(q, k, v, batch_first=True):
    """(N, H, L, D), or (L, N, H, D): no exchange of samples and rows."""
    if not batch_first:
        q, k, v = (x.permute(1, 2, 0, 3) for x in (q, k, v))
    output = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
    return output if batch_first else output.permute(2, 0, 1, 3)
