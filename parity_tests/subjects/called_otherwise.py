"""Right attentions that a call by their names alone would get wrong, and wrong ones of the same."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


def length_first(query, key, value, mask=None, scale=None, is_causal=False):
    """Right: arrays (N, L, H, D), a mask (N, 1, L, S) that is True where a key takes part."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.einsum("nlhd,nshd->nhls", query, key) * scale
    if is_causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return torch.einsum("nhls,nshd->nlhd", scores.softmax(dim=-1), value)


def length_first_unscaled(query, key, value, mask=None, scale=None, is_causal=False):
    """Wrong: its default is not to scale."""
    return length_first(query, key, value, mask, 1.0 if scale is None else scale, is_causal)


def one_sample(query, key, value, bias=None, mask=None):
    """Right: arrays (..., L, H, D), and masks with as many axes in front of (H, L, S)."""
    scores = torch.einsum("...lhd,...shd->...hls", query, key) / query.shape[-1] ** 0.5
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
    return torch.einsum("...hls,...shd->...lhd", scores.softmax(dim=-1), value)


def one_sample_hides(query, key, value, bias=None, mask=None):
    """Wrong: its mask is True where a key is hidden."""
    return one_sample(query, key, value, bias, None if mask is None else ~mask)


class Proximal(nn.Module):
    """Right: a switch, off by default, adds a bias to the scores."""

    def __init__(self, embed_dim, num_heads, proximal_bias=False, qkv_bias=False):
        super().__init__()
        self.num_heads, self.proximal_bias = num_heads, proximal_bias
        self.q, self.k, self.v, self.out = (
            nn.Conv1d(embed_dim, embed_dim, 1, bias=qkv_bias) for _ in range(4)
        )

    def forward(self, x):
        """Return (N, E, L) of inputs (N, E, L)."""
        q, k, v = (
            conv(x).unflatten(1, (self.num_heads, -1)).mT for conv in (self.q, self.k, self.v)
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if self.proximal_bias:
            at = torch.arange(scores.shape[-1])
            scores = scores - torch.log1p((at[:, None] - at).abs().to(scores.dtype))
        return self.out((scores.softmax(dim=-1) @ v).mT.flatten(1, 2))


class ProximalAlways(Proximal):
    """Wrong: the bias is added whatever the switch says."""

    def __init__(self, embed_dim, num_heads, proximal_bias=False, qkv_bias=False):
        super().__init__(embed_dim, num_heads, True, qkv_bias)


class OwnModule:
    """Right: no layer of torch's, with methods of their names that do other things."""

    modules = ()
    ends = 1

    def __init__(self, embed_dim, num_heads):
        self.num_heads = num_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (
            torch.tensor(np.eye(embed_dim)) for _ in range(4)
        )

    def parameters(self):
        """Return a list, as a library of one's own may."""
        return [self.w_q, self.w_k, self.w_v, self.w_o]

    def named_parameters(self):
        """Return names alone."""
        return ["w_q", "w_k", "w_v", "w_o"]

    def __call__(self, x):
        """Return (N, L, E)."""
        q, k, v = (
            (x @ w).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        scores = self.ends * q @ k.mT / q.shape[-1] ** 0.5
        return (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2) @ self.w_o


class OwnModuleUnscaled(OwnModule):
    """Wrong: its scores are twice as large."""

    ends = 2


class OfOneInput(nn.Module):
    """Right: keeps its weights under torch's names, and takes one input."""

    sharpness = 1

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * embed_dim, embed_dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dim))
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        nn.init.xavier_uniform_(self.in_proj_weight)

    def attended(self, rows, context):
        """Return (N, L, E)."""
        w_q, w_k, w_v = self.in_proj_weight.chunk(3)
        b_q, b_k, b_v = self.in_proj_bias.chunk(3)
        q, k, v = (
            nn.functional.linear(x, w, b).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for x, w, b in ((rows, w_q, b_q), (context, w_k, b_k), (context, w_v, b_v))
        )
        scores = self.sharpness * q @ k.mT / q.shape[-1] ** 0.5
        return self.out_proj((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))

    def forward(self, x):
        """Return (N, L, E)."""
        return self.attended(x, x)


class OfOneInputUnscaled(OfOneInput):
    """Wrong: its scores are twice as large."""

    sharpness = 2


class KeysFirst(OfOneInput):
    """Right: the last words of its inputs' names tell the query from keys and values."""

    def forward(self, inputs_kv, inputs_q):
        """Return (N, L, E)."""
        return self.attended(inputs_q, inputs_kv)


class KeysFirstUnscaled(KeysFirst):
    """Wrong: its scores are twice as large."""

    sharpness = 2
