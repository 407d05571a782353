"""Functions of heads whose scores do nothing, or lose the digits of 16 bits."""

from __future__ import annotations

import torch


def summed_alone(query, key, value):
    """Wrong: weights and values are summed each by itself."""
    weights = (query @ key.mT * query.shape[-1] ** -0.5).softmax(-1)
    return torch.einsum("nhls,nhtd->nhld", weights, value)


def in_bfloat16(query, key, value):
    """Wrong: q, k, v and the weights have the digits of bfloat16."""
    q, k, v = (each.bfloat16().to(each.dtype) for each in (query, key, value))
    weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
    return weights.bfloat16().to(query.dtype) @ v
