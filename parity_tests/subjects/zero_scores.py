"""Kernels that take scores of exactly 0 for hidden ones, wrong but for ``by_place``."""

from __future__ import annotations

import torch


def scores_of(q, k):
    return q @ k.mT * q.shape[-1] ** -0.5


def by_place(query, key, value, is_causal=False):
    """Right: the rule hides by places."""
    scores = scores_of(query, key)
    if is_causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -torch.inf)
    return scores.softmax(dim=-1) @ value


def of_future(query, key, value, is_causal=False):
    """Wrong under the causal rule: future scores are made 0, and each 0 is hidden."""
    scores = scores_of(query, key)
    if is_causal:
        scores = scores.tril()
        scores = scores.masked_fill(scores == 0, -torch.inf)
    return scores.softmax(dim=-1) @ value


def of_all(query, key, value, is_causal=False):
    """Wrong without a mask too."""
    scores = scores_of(query, key)
    scores = scores.tril() if is_causal else scores
    return scores.masked_fill(scores == 0, -torch.inf).softmax(dim=-1) @ value
