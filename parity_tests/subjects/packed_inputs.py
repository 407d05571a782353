"""Attentions that take query, key and value, or key and value, in one argument."""

import math

import numpy as np
import torch
from torch import nn

from styles import attend, merge, split


def stacked(qkv, dropout_p=0.0, softmax_scale=None, causal=False):
    """Take (N, L, 3, H, D) and return (N, L, H, D)."""
    q, k, v = qkv.unbind(dim=2)
    scale = 1 / math.sqrt(q.shape[-1]) if softmax_scale is None else softmax_scale
    scores = torch.einsum("nlhd,nshd->nhls", q, k) * scale
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    weights = torch.dropout(scores.softmax(-1), dropout_p, train=dropout_p > 0)
    return torch.einsum("nhls,nshd->nlhd", weights, v)


def stacked_late(qkv, causal=False):
    """Wrong: the causal rule lets each row see one key more."""
    q, k, v = (each.transpose(1, 2) for each in qkv.unbind(dim=2))
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(2)
        scores = scores.masked_fill(future, -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2)


def keys_stacked(q, kv, causal=False):
    """Take (N, L, H, D) and (N, S, 2, H, D); fewer key heads are shared."""
    k, v = kv.unbind(dim=2)
    groups = q.shape[2] // k.shape[2]
    k, v = (each.repeat_interleave(groups, dim=2) for each in (k, v))
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)


def keys_stacked_crossed(q, kv):
    """Wrong: the values are taken for keys, and the keys for values."""
    q, v, k = (each.transpose(1, 2) for each in (q, *kv.unbind(dim=2)))
    return attend(q, k, v).transpose(1, 2)


def keys_stacked_late(q, kv):
    """Wrong: the last key is left out."""
    q, k, v = (each.transpose(1, 2) for each in (q, *kv.unbind(dim=2)))
    return attend(q, k[:, :, :-1], v[:, :, :-1]).transpose(1, 2)


def rows_of_numpy(qkv, num_heads):
    """Take (N, L, 3 E) of NumPy and return (N, L, E)."""
    n, length, width = qkv.shape
    parts = qkv.reshape(n, length, 3, num_heads, width // 3 // num_heads)
    q, k, v = parts.transpose(2, 0, 3, 1, 4)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = weights / weights.sum(-1, keepdims=True) @ v
    return mixed.swapaxes(1, 2).reshape(n, length, width // 3)


def in_a_tuple(qkv):
    """Take a tuple of (N, H, L, D)."""
    return attend(*qkv)


def in_a_list_of_values_first(vqk, mask=None):
    """Take a list of value, query and key, (N, H, L, D); ``mask`` keeps where it is 1."""
    value, query, key = vqk
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -math.inf)
    return scores.softmax(-1) @ value


def in_a_tuple_by_width(qkv):
    """Wrong: the scale is that of all heads."""
    q, k, v = qkv
    return (q @ k.mT / math.sqrt(q.shape[-1] * q.shape[1])).softmax(-1) @ v


class PartsOfChannels(nn.Module):
    """Takes (N, 3 H D, L), all queries first, and returns (N, H D, L)."""

    def __init__(self, n_heads):
        super().__init__()
        self.n_heads = n_heads

    def parts(self, qkv):
        """Return query, key and value as (N, H, L, D)."""
        return (split(each.mT, self.n_heads) for each in qkv.chunk(3, dim=1))

    def forward(self, qkv):
        """Return (N, H D, L)."""
        return merge(attend(*self.parts(qkv))).mT


class HeadsOfChannels(PartsOfChannels):
    """Takes (N, H 3 D, L), all of the first head first."""

    def parts(self, qkv):
        """Return query, key and value as (N, H, L, D)."""
        n, width, length = qkv.shape
        heads = qkv.reshape(n, self.n_heads, width // self.n_heads, length)
        return (each.mT for each in heads.chunk(3, dim=2))


class HeadsOfChannelsHalfScaled(HeadsOfChannels):
    """Wrong: the queries alone are divided by the fourth root of the width of a head."""

    def forward(self, qkv):
        """Return (N, H D, L)."""
        q, k, v = self.parts(qkv)
        weights = (q / q.shape[-1] ** 0.25 @ k.mT).softmax(-1)
        return merge(weights @ v).mT


class OneHeadOfChannels(nn.Module):
    """Takes (N, 3 E, L) and has one head."""

    def forward(self, x):
        """Return (N, E, L)."""
        q, k, v = (each.mT for each in x.chunk(3, dim=1))
        return attend(q, k, v).mT


class ForgetsHeads(PartsOfChannels):
    """Wrong: is built with a number of heads, and has one."""

    def forward(self, qkv):
        """Return (N, H D, L)."""
        q, k, v = (each.mT for each in qkv.chunk(3, dim=1))
        return attend(q, k, v).mT


def values_detached(qkv):
    """Wrong: the values of (N, L, 3, H, D) get no gradient."""
    q, k, v = (each.transpose(1, 2) for each in qkv.unbind(dim=2))
    return attend(q, k, v.detach()).transpose(1, 2)
