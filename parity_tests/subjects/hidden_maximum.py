"""A softmax whose maximum is taken over visible keys, or on purpose over hidden ones too."""

from __future__ import annotations

import torch


def weights_of(scores, keep, top):
    """Return exp(score - top) of what is kept over its sum; rows that keep nothing are 0."""
    powers = torch.exp(scores - top).masked_fill(~keep, 0)
    total = powers.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, powers / total, torch.zeros_like(powers))


def scores_and_keep(query, key, attn_mask, is_causal):
    """Return the scores, and which of them a row sees: True in ``attn_mask`` keeps."""
    scores = query @ key.mT * query.shape[-1] ** -0.5
    keep = torch.ones_like(scores, dtype=torch.bool)
    keep = keep if attn_mask is None else keep & attn_mask
    return scores, keep.tril() if is_causal else keep


def of_visible(query, key, value, attn_mask=None, is_causal=False):
    """Right: what is hidden is -inf before the maximum is taken."""
    scores, keep = scores_and_keep(query, key, attn_mask, is_causal)
    scores = scores.masked_fill(~keep, -torch.inf)
    top = scores.amax(dim=-1, keepdim=True)
    return weights_of(scores, keep, torch.where(torch.isinf(top), 0, top)) @ value


def of_all(query, key, value, attn_mask=None, is_causal=False):
    """Wrong on purpose where a hidden score is so large that all visible ones underflow."""
    scores, keep = scores_and_keep(query, key, attn_mask, is_causal)
    return weights_of(scores, keep, scores.amax(dim=-1, keepdim=True)) @ value


def hidden_behind_exp(query, key, value, attn_mask=None, is_causal=False):
    """Wrong on purpose where a hidden score is so large that its exp overflows: 0 times infinity."""
    scores, keep = scores_and_keep(query, key, attn_mask, is_causal)
    top = scores.masked_fill(~keep, -torch.inf).amax(dim=-1, keepdim=True)
    powers = torch.exp(scores - torch.where(torch.isinf(top), 0, top)) * keep
    return powers / powers.sum(dim=-1, keepdim=True) @ value


def approximated(query, key, value, attn_mask=None, is_causal=False):
    """Wrong on purpose where a visible score lies far below the largest: exp grows there again."""
    scores, keep = scores_and_keep(query, key, attn_mask, is_causal)
    top = scores.masked_fill(~keep, -torch.inf).amax(dim=-1, keepdim=True)
    powers = (1 + torch.where(keep, scores - top, 0) / 1024) ** 1024 * keep
    return powers / powers.sum(dim=-1, keepdim=True) @ value


def of_all_flushed(query, key, value, attn_mask=None, is_causal=False):
    """Wrong on purpose as ``of_all``: NaN, and from where exp is subnormal, which it flushes to 0."""
    scores, keep = scores_and_keep(query, key, attn_mask, is_causal)
    powers = torch.exp(scores - scores.amax(dim=-1, keepdim=True)) * keep
    powers = torch.where(powers < torch.finfo(powers.dtype).tiny, 0, powers)
    return powers / powers.sum(dim=-1, keepdim=True) @ value
