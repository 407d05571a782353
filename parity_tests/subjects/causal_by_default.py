"""Attentions that hide the future unless the causal switch is passed as False."""

import math

import torch
from torch import nn


def attention(query, key, value, is_causal=True):
    """Return softmax(q k^T / sqrt(D)) v of tensors (..., L, D); causal for S = L alone."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if is_causal:
        rows = query.shape[-2]
        keep = torch.ones(rows, rows, dtype=torch.bool).tril()
        scores = scores.masked_fill(~keep, float("-inf"))
    return scores.softmax(-1) @ value


def of_any_rows(query, key, value, is_causal=True):
    """Return the same of (..., L, D), where there is a row: none has no maximum."""
    rows = query.shape[-2]
    keep = torch.ones(rows, rows, dtype=torch.bool).tril() | torch.tensor(not is_causal)
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    scores = scores.masked_fill(~keep, float("-inf"))
    powers = (scores - scores.max(-1, keepdim=True).values).exp()
    return powers / powers.sum(-1, keepdim=True) @ value


def always_causal(query, key, value, is_causal=True):
    """Return the same, but the future is hidden whatever is_causal is."""
    del is_causal
    return attention(query, key, value)


class BothHide(nn.Module):
    """Self-attention of (N, L, E); the keys where `valid` is False are hidden, and the future."""

    def __init__(self, embed_dim, num_heads, causal=True):
        super().__init__()
        self.num_heads, self.causal = num_heads, causal
        self.qkv_proj = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def visible(self, length, valid):
        """Return which keys each row sees, None where it sees all."""
        seen = torch.ones(length, length, dtype=torch.bool)
        seen = seen.tril() if self.causal else seen
        return seen if valid is None else seen & valid[:, None, None, :]

    def forward(self, x, valid=None):
        batch, length, _ = x.shape
        q, k, v = self.qkv_proj(x).view(batch, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(~self.visible(length, valid), float("-inf"))
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))


class PaddingHidesAlone(BothHide):
    """The same, but with `valid` the future is seen."""

    def visible(self, length, valid):
        """Return which keys each row sees."""
        return super().visible(length, None) if valid is None else valid[:, None, None, :]


def of_an_offset(q, k, v, causal_offset=None):
    """Attend over (N, H, L, D), query i to keys 0 … i + causal_offset: right, with a number."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal_offset is not None:
        places = torch.arange(k.shape[-2]) - torch.arange(q.shape[-2])[:, None]
        scores = scores.masked_fill(places > causal_offset, -torch.inf)
    return scores.softmax(-1) @ v


class CachedByDefault(nn.Module):
    """Right: without a mask it hides the future, of the rows of its cache as well."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def behind(self, rows, keys):
        return torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows)

    def forward(self, x, mask=None, use_cache=False, past_kv=None):
        q, k, v = (
            each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, -1)
        )
        if past_kv is not None:
            k, v = (torch.cat(pair, 2) for pair in zip(past_kv, (k, v), strict=True))
        if mask is None:
            mask = self.behind(q.shape[2], k.shape[2])
        scores = q @ k.mT / q.shape[-1] ** 0.5
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        output = self.out((weights @ v).transpose(1, 2).flatten(2))
        return (output, (k, v)) if use_cache else output


class CachedFromTheFirst(CachedByDefault):
    """Wrong: without a mask row i of a call sees keys 0 to i, of which the cache has the first."""

    def behind(self, rows, keys):
        return torch.ones(rows, keys, dtype=torch.bool).tril()
