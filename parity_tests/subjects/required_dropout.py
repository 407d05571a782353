"""Attentions that require a module of dropout in their call."""

import math

import torch
from torch import nn


def attention(query, key, value, dropout: nn.Dropout, mask=None):
    """Return softmax(q k^T / sqrt(D)) v of (N, H, L, D), and the weights; 0 in the mask hides."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = dropout(torch.softmax(scores, dim=-1))
    return weights @ value, weights


def unscaled(query, key, value, dropout: "nn.Dropout", mask=None):
    """Return the same without the scale."""
    return attention(query * math.sqrt(query.shape[-1]), key, value, dropout, mask)
