"""Attention of one array over itself without any projection; right and wrong."""

from __future__ import annotations

import numpy as np
import torch


def softmax(scores):
    """Return the weights of each row."""
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def attended(x, scores):
    """Return the mean of the rows by their weights."""
    return softmax(scores) @ x


def of_rows(x):
    """One head of rows (N, L, E)."""
    return attended(x, x @ x.swapaxes(-1, -2) / np.sqrt(x.shape[-1]))


def of_heads(x, num_heads):
    """Several heads of rows (N, L, E)."""
    heads = np.stack(np.split(x, num_heads, axis=-1), axis=1)
    return np.concatenate(list(of_rows(heads).swapaxes(0, 1)), axis=-1)


def of_heads_by_width(x, num_heads):
    """Wrong on purpose: scores are divided by the root of the whole width."""
    heads = np.stack(np.split(x, num_heads, axis=-1), axis=1)
    mixed = attended(heads, heads @ heads.swapaxes(-1, -2) / np.sqrt(x.shape[-1]))
    return np.concatenate(list(mixed.swapaxes(0, 1)), axis=-1)


def of_tensors(x, mask=None):
    """Rows of tensors, where True of the mask is seen."""
    scores = x @ x.mT * x.shape[-1] ** -0.5
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ x


def of_tensors_by_columns(x, mask=None):
    """Wrong on purpose: the softmax runs over the queries."""
    scores = x @ x.mT * x.shape[-1] ** -0.5
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-2) @ x
