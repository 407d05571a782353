"""Attentions of torch's name and keywords whose documentation lets masks be broadcast."""

import torch

__all__ = ["by_rows", "by_rows_of_mask"]


def _attend(query, key, value, attn_mask, rows_of):
    parts = []
    for start in range(0, query.shape[-2], 16):
        scores = query[..., start : start + 16, :] @ key.mT / query.shape[-1] ** 0.5
        if attn_mask is not None:
            mask = rows_of(attn_mask, start)
            hides = mask.dtype == torch.bool
            scores = scores.masked_fill(~mask, -torch.inf) if hides else scores + mask
        parts.append(scores.softmax(-1) @ value)
    return torch.cat(parts, dim=-2)


def by_rows(query, key, value, attn_mask=None):
    """Attend by 16 rows at a time: right. attn_mask broadcasts to (..., L, S), True takes part."""

    def rows_of(mask, start):
        return mask if mask.shape[-2] == 1 else mask[..., start : start + 16, :]

    return _attend(query, key, value, attn_mask, rows_of)


def by_rows_of_mask(query, key, value, attn_mask=None):
    """Attend by 16 rows at a time: wrong. attn_mask broadcasts to (..., L, S), True takes part."""
    return _attend(query, key, value, attn_mask, lambda mask, at: mask[..., at : at + 16, :])
