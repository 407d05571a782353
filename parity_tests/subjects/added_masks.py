"""Kernels whose documentation says that their mask is added; of booleans it says nothing."""

from __future__ import annotations

import torch

LOG2E = 1.4426950408889634


def begun(query, key, value, attn_mask=None):
    """Return (N, H, L, D).

    query (N, H, L, D), key and value (N, H, S, D). attn_mask is additive and broadcastable to
    (N, H, L, S).
    """
    scores = query @ key.mT * query.shape[-1] ** -0.5
    scores = scores if attn_mask is None else scores + attn_mask
    return scores.softmax(dim=-1) @ value


def entered(query, key, value, attn_mask=None):
    """Return (N, H, L, D).

    attn_mask: optional float mask, added to the scores.
    """
    return begun(query, key, value, attn_mask)


def halved(query, key, value, attn_mask=None):
    """Wrong on purpose: a part of the mask is lost.

    attn_mask: optional float mask, added to the scores.
    """
    return begun(query, key, value, None if attn_mask is None else attn_mask.clamp(min=-2.0))


def unsaid(query, key, value, attn_mask=None):
    """Wrong on purpose: 1 is added where torch's True keeps a key, and nothing says otherwise."""
    return begun(query, key, value, attn_mask)


def broadcast_bias(q, k, v, bias=None):
    """Return (N, H, L, D), 0 in rows that see no key.

    bias: float, broadcastable to (N, H, L, S), added to the scores; -inf hides a key.
    """
    scores = q @ k.mT * q.shape[-1] ** -0.5
    scores = scores if bias is None else scores + bias
    largest = scores.detach().amax(dim=-1, keepdim=True)
    odds = torch.exp(scores - largest.masked_fill(largest.isinf(), 0.0))
    total = odds.sum(dim=-1, keepdim=True)
    return odds / total.masked_fill(total == 0, 1.0) @ v


def in_base_two(q, k, v, bias=None):
    """Wrong on purpose: log2(e) times the least number is -inf, and a row of these is NaN.

    bias: float, broadcastable to (N, H, L, S), added to the scores; -inf hides a key.
    """
    scores = q @ k.mT * (q.shape[-1] ** -0.5 * LOG2E)
    scores = scores if bias is None else scores + bias * LOG2E
    powers = torch.exp2(scores - scores.amax(dim=-1, keepdim=True))
    return powers @ v / powers.sum(dim=-1, keepdim=True)


def scaled_with_it(q, k, v, bias=None):
    """Wrong on purpose: the mask is scaled with the scores.

    bias: float, broadcastable to (N, H, L, S), added to the scores; -inf hides a key.
    """
    scores = q @ k.mT if bias is None else q @ k.mT + bias
    return (scores * q.shape[-1] ** -0.5).softmax(dim=-1) @ v
