"""Masks in torch's module polarity: True hides a key, a float is added to the logits."""

from __future__ import annotations

import torch


def causal(queries: int, keys: int) -> torch.Tensor:
    """Return the top-left causal mask (L, S): query i sees the keys j <= i."""
    return torch.ones(queries, keys, dtype=torch.bool).triu(diagonal=1)


def of_one_kind(
    attn_mask: torch.Tensor | None, key_padding_mask: torch.Tensor | None, dtype: torch.dtype
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Turn a boolean mask that is given with a float mask into the float mask torch makes of it.

    torch does the same after warning that mixed kinds are deprecated.
    """
    if attn_mask is None or key_padding_mask is None:
        return attn_mask, key_padding_mask
    if attn_mask.dtype == key_padding_mask.dtype:
        return attn_mask, key_padding_mask
    return _as_float(attn_mask, dtype), _as_float(key_padding_mask, dtype)


def _as_float(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype).masked_fill_(mask, float("-inf"))
