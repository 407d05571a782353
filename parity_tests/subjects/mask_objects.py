"""Attentions whose masks are objects: an attribute of them is the array."""

from __future__ import annotations

import math

import torch
from torch import nn


class FullAttention(nn.Module):
    """Right: reads what is visible from ``bool_matrix``, and adds ``additive_matrix``."""

    def forward(self, queries, keys, values, attn_mask, key_lengths=None):
        """Return (N, L, H, D) of rows (N, L, H, D)."""
        scores = torch.einsum("nlhd,nshd->nhls", queries, keys) / math.sqrt(queries.shape[-1])
        if not attn_mask.all_ones:
            scores = scores.masked_fill(self.hidden(attn_mask), -math.inf)
        if key_lengths is not None:
            scores = scores + key_lengths.additive_matrix[:, None, None]
        return torch.einsum("nhls,nshd->nlhd", scores.softmax(-1), values)

    def hidden(self, attn_mask):
        """Return where a key is hidden."""
        return ~attn_mask.bool_matrix


class HidesNoFirst(FullAttention):
    """Wrong: the first key is visible whatever the mask says."""

    def hidden(self, attn_mask):
        """Return where a key is hidden, the first one nowhere."""
        hidden = ~attn_mask.bool_matrix
        return hidden & (torch.arange(hidden.shape[-1]) > 0)


class Flagged(nn.Module):
    """Right: causal unless it is given a mask, which it reads only if it is flagged."""

    fill = -math.inf

    def __init__(self, mask_flag=True):
        super().__init__()
        self.mask_flag = mask_flag

    def forward(self, queries, keys, values, attn_mask):
        """Return (N, L, H, D) of rows (N, L, H, D), and None."""
        scores = torch.einsum("nlhd,nshd->nhls", queries, keys)
        if self.mask_flag:
            shape = scores.shape[-2:]
            causal = torch.ones(shape, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(causal if attn_mask is None else attn_mask.mask, self.fill)
        weights = (scores / math.sqrt(queries.shape[-1])).softmax(-1)
        return torch.einsum("nhls,nshd->nlhd", weights, values), None


class FlaggedSoftly(Flagged):
    """Wrong: what is hidden keeps a small weight."""

    fill = -9.0
