"""Attentions that want masks of one kind alone, and raise at all others."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from styles import attend, merge, split


class PaddingWanted(nn.Module):
    """Hides the future and, by a mask (N, S) that has to be given, padding."""

    first_hidden = 1

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, x, padding_mask):
        """Return (N, L, E)."""
        if padding_mask.shape != x.shape[:2]:
            raise ValueError(f"got a mask {tuple(padding_mask.shape)}")
        q, k, v = (split(f(x), self.heads) for f in (self.q_proj, self.k_proj, self.v_proj))
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(self.first_hidden)
        hidden = padding_mask[:, None, None, :].bool() | later
        return self.o_proj(merge(attend(q, k, v, hidden)))


class PaddingWantedLoose(PaddingWanted):
    """Lets each query see one key of the future."""

    first_hidden = 2


class RepeatsItsMask(nn.Module):
    """Right: repeats a mask over the heads, without a look at whether there is one."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = n_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )

    def repeated(self, mask):
        """Return a mask (N, L, S) as (H N, L, S)."""
        return mask.repeat(self.heads, 1, 1)

    def forward(self, q, k, v, mask=None):
        """Return (N, L, E)."""
        rows = (self.q_proj, q), (self.k_proj, k), (self.v_proj, v)
        q, k, v = (split(f(x), self.heads).transpose(0, 1).flatten(0, 1) for f, x in rows)
        out = attend(q, k, v, self.repeated(mask)).unflatten(0, (self.heads, -1))
        return self.o_proj(merge(out.transpose(0, 1)))


class RepeatsEachMask(RepeatsItsMask):
    """Wrong: heads get the masks of other samples."""

    def repeated(self, mask):
        """Return a mask (N, L, S) as (N H, L, S)."""
        return mask.repeat_interleave(self.heads, 0)


def heads_of(rows, num_heads):
    """Return (N, L, E) as (N, H, L, D)."""
    return rows.reshape(*rows.shape[:2], num_heads, -1).swapaxes(1, 2)


def softmax_product(query, key, value, num_heads, mask):
    """Return attention with a mask that is added, or None."""
    q, k, v = (heads_of(rows, num_heads) for rows in (query, key, value))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(query.dtype)
    scores = scores if mask is None else scores + mask.astype(query.dtype)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return (weights @ v).swapaxes(1, 2).reshape(query.shape)


def of_a_list(query, key, value, num_heads, mask=None):
    """Takes its mask as a list of lengths alone."""
    if mask is not None and not isinstance(mask, list):
        raise TypeError("got a mask that is no list")
    return softmax_product(query, key, value, num_heads, None)


def of_float64(query, key, value, num_heads, mask=None):
    """Takes its mask in float64 alone."""
    if mask is not None and mask.dtype != np.float64:
        raise TypeError(f"got a mask of {mask.dtype}")
    return softmax_product(query, key, value, num_heads, mask)


def of_two_dtypes(query, key, value, num_heads, mask=None, extra_mask=None):
    """Takes `mask` in every dtype, and `extra_mask` in float64 alone if it is one of floats."""
    if extra_mask is not None and extra_mask.dtype == np.float32:
        raise TypeError(f"got an extra mask of {extra_mask.dtype}")
    given = [each for each in (mask, extra_mask) if each is not None]
    added = [np.where(each, -np.inf, 0.0) if each.dtype == bool else each for each in given]
    return softmax_product(query, key, value, num_heads, sum(added) if added else None)


def without_a_future(query, key, value, num_heads, causal=False):
    """Has a switch that is not written yet."""
    if causal:
        raise NotImplementedError("causal is not written yet")
    return softmax_product(query, key, value, num_heads, None)


def of_nothing(query, key, value, num_heads, mask=None):
    """Takes a mask, and does not apply it."""
    del mask
    return softmax_product(query, key, value, num_heads, None)


def of_two(query, key, value, num_heads, mask=None, causal=False):
    """Forgets the one, and raises at the other."""
    del mask
    return without_a_future(query, key, value, num_heads, causal)


def unscaled(query, key, value, num_heads):
    """Forgets the scale."""
    return softmax_product(
        query * (query.shape[-1] // num_heads) ** 0.5, key, value, num_heads, None
    )


class KeepsByItsMask(RepeatsItsMask):
    """Right: a mask (N, L, S), or broadcast to it, keeps where it is not 0; it may not be left out."""

    def kept(self, mask):
        """Return the mask (N, 1, L, S)."""
        return mask.unsqueeze(1) != 0

    def forward(self, x, mask=None):
        """Return (N, L, E)."""
        parts = (each(x) for each in (self.q_proj, self.k_proj, self.v_proj))
        q, k, v = (split(each, self.heads) for each in parts)
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~self.kept(mask), -torch.inf)
        return self.o_proj(merge(scores.softmax(-1) @ v))


class KeepsByEachMask(KeepsByItsMask):
    """Wrong: the first head sees all keys."""

    def kept(self, mask):
        """Return the mask (N, H, L, S)."""
        kept = super().kept(mask).repeat(1, self.heads, 1, 1)
        kept[:, 0] = True
        return kept


class ValuesByWeightsOfKeys(nn.Module):
    """Values are projected by the weights of the keys: wrong with and without a mask."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def forward(self, q, k, v, mask=None):
        q, k, v = (
            w(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for w, x in ((self.wq, q), (self.wk, k), (self.wk, v))
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        return self.wo((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
