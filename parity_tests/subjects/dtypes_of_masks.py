"""Copies of torch's layer that take masks of floats in some dtypes alone."""

from __future__ import annotations

import torch
from torch import nn

TAKEN = (torch.float64, torch.float32, torch.float16, torch.bool)


class NoShortMasks(nn.MultiheadAttention):
    """Right: refuses a mask in bfloat16, as releases of torch before it did."""

    factor = 1

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None):
        """Return torch's output and weights."""
        if attn_mask is not None and attn_mask.dtype not in TAKEN:
            raise TypeError(f"masks of {attn_mask.dtype} are not supported")
        output, weights = super().forward(
            query, key, value, key_padding_mask=key_padding_mask, need_weights=need_weights,
            attn_mask=attn_mask,
        )  # fmt: skip
        return output * self.factor, weights


class NoShortMasksDoubled(NoShortMasks):
    """Wrong: its output is twice as large."""

    factor = 2
