"""Functions of q, k, v in (N, L, H, D), named as torch's own, right and wrong; and tiled kernels."""

from __future__ import annotations

import torch
from torch import nn


def _attend(query, key, value, scale):
    weights = torch.einsum("nlhd,nshd->nhls", query * scale, key).softmax(dim=-1)
    return torch.einsum("nhls,nshd->nlhd", weights, value)


def right(query, key, value):
    """Return (N, L, H, D)."""
    return _attend(query, key, value, query.shape[-1] ** -0.5)


def unscaled(query, key, value):
    """Wrong on purpose: no scale."""
    return _attend(query, key, value, 1.0)


def in_tiles(q, k, v, key_padding_mask=None, tile=32):
    """Right: (N, H, L, D), and (N, S) where True hides.

    Of (H, L, D) and a mask (1, L, S) tiles are cut along the wrong axis, which raises if L > S.
    """
    out = q.new_zeros((*q.shape[:-1], v.shape[-1]))
    total, mixed = q.new_zeros((*q.shape[:-1], 1)), torch.zeros_like(out)
    top = torch.full_like(total, torch.finfo(q.dtype).min)
    for start in range(0, k.shape[-2], tile):
        part = slice(start, start + tile)
        scores = q @ k[..., part, :].mT * q.shape[-1] ** -0.5
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask[:, None, None, part], -torch.inf)
        larger = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
        powers, kept = (scores - larger).exp(), (top - larger).exp()
        total = total * kept + powers.sum(dim=-1, keepdim=True)
        mixed = mixed * kept + powers @ v[..., part, :]
        top = larger
    out[..., :, :] = torch.where(total > 0, mixed / total, 0)
    return out


class WithMaps(nn.Module):
    """Right for batches: of one sample without its axis, a mask gives the weights one."""

    scale = 1.0

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v, self.o = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def forward(self, x, memory, kv_valid=None):
        """Return (..., L, E) and the mean of the weights; kv_valid: (N, S), True sees."""
        linears = ((self.q, x), (self.k, memory), (self.v, memory))
        q, k, v = (f(r).unflatten(-1, (self.num_heads, -1)) for f, r in linears)
        scores = torch.einsum("...qhd,...khd->...hqk", q, k) * self.scale / q.shape[-1] ** 0.5
        if kv_valid is not None:
            if kv_valid.ndim > 3:
                raise ValueError(f"kv_valid has shape {tuple(kv_valid.shape)}")
            scores = scores.masked_fill(~kv_valid.bool()[:, None, None, :], -torch.inf)
        weights = scores.softmax(-1)
        heads = torch.einsum("...hqk,...khd->...qhd", weights, v)
        return self.o(heads.reshape(x.shape)), weights.mean(-3)


class WithMapsUnscaled(WithMaps):
    """Wrong on purpose: scores twice as large."""

    scale = 2.0


def behind_channels(q, k, v, n_heads):
    """Right: (N, E, L), of which every head has as many channels behind one another."""
    split = (each.unflatten(1, (n_heads, -1)).transpose(-1, -2) for each in (q, k, v))
    rows, keys, values = split
    weights = (rows @ keys.mT * rows.shape[-1] ** -0.5).softmax(dim=-1)
    return (weights @ values).transpose(-1, -2).flatten(1, 2)


def behind_channels_unscaled(q, k, v, n_heads):
    """Wrong on purpose: no scale."""
    return behind_channels(q * (q.shape[1] / n_heads) ** 0.5, k, v, n_heads)
