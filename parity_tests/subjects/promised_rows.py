"""Functions and a layer that document what rows come to that see no key."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


def attend(q, k, v, keep, fill, cleared):
    """Return the heads, (N, H, L, D), with hidden scores filled, and rows cleared or not."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = torch.as_tensor(np.where(keep, scores, fill)).softmax(-1).numpy()
    weights = weights.astype(q.dtype)
    return np.where(keep.any(-1, keepdims=True), weights, 0) @ v if cleared else weights @ v


def kept(q, k, keep):
    """Return a mask (N, H, L, S)."""
    shape = (*q.shape[:-1], k.shape[-2])
    return np.broadcast_to(True if keep is None else keep, shape)


def zero(q, k, v, keep=None):
    """Right: (N, H, L, D), keep (L, S) bool. A row of ``keep`` with no True gives a zero row."""
    return attend(q, k, v, kept(q, k, keep), -1e30, True)


def uniform(q, k, v, keep=None):
    """Wrong: (N, H, L, D), keep (L, S) bool. A row of ``keep`` with no True gives a zero row."""
    return attend(q, k, v, kept(q, k, keep), -1e30, False)


def uniform_as_said(q, k, v, keep=None):
    """Right: (N, H, L, D), keep (L, S) bool. A row with no True is not zero, but a mean."""
    return attend(q, k, v, kept(q, k, keep), -1e30, False)


def nan_where_unsaid(q, k, v, keep=None):
    """Right: (N, H, L, D), keep (L, S) bool. Scores of hidden keys are filled; 0 keys raise."""
    return attend(q, k, v, kept(q, k, keep), -np.inf, False)


class Layer(nn.Module):
    """Right: rows (N, L, E). Fully masked queries come to zeros before the last projection."""

    cleared = True

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, key_padding_mask=None):
        """Return (N, L, E); True hides."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if key_padding_mask is not None:
            hidden = key_padding_mask[:, None, None].expand(scores.shape)
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        if key_padding_mask is not None and self.cleared:
            weights = weights.masked_fill(hidden, 0)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


class LayerOfMeans(Layer):
    """Wrong: rows (N, L, E). Fully masked queries come to zeros before the last projection."""

    cleared = False


class LayerOfZeros(Layer):
    """Right: rows (N, L, E). Fully masked queries come out as zeros, behind the last projection."""

    def forward(self, x, key_padding_mask=None):
        """Return (N, L, E); True hides."""
        output = super().forward(x, key_padding_mask)
        if key_padding_mask is None:
            return output
        return output.masked_fill(key_padding_mask.all(-1)[:, None, None], 0)


def uniform_weights(q, k, v, keep=None):
    """Right: (N, H, L, D), keep (L, S) bool. The output of rows that see no key is 0.

    Returns the output and the weights.
    """
    seen = kept(q, k, keep)
    identity = np.broadcast_to(np.eye(k.shape[-2], dtype=q.dtype), (*k.shape[:-1], k.shape[-2]))
    return attend(q, k, v, seen, -1e30, True), attend(q, k, identity, seen, -1e30, False)


def without_gradient(q, k, v, mask=None):
    """Right: (N, H, L, D), True of a mask (L, S) keeps.

    Queries for which no key takes part get a zero vector and pass no gradient.
    """
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if mask is None:
        return scores.softmax(-1) @ v
    empty = ~mask.any(-1, keepdim=True)
    weights = scores.masked_fill(~(mask | empty), -torch.inf).softmax(-1)
    return weights.masked_fill(empty, 0.0) @ v


def with_nan_gradient(q, k, v, mask=None):
    """Wrong: (N, H, L, D), True of a mask (L, S) keeps.

    Queries for which no key takes part get a zero vector and pass no gradient.
    """
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores + torch.zeros_like(scores).masked_fill(~mask, -torch.inf)
    return scores.softmax(-1).nan_to_num(0.0) @ v


def demands_a_key(q, k, v, bias=None):
    """Right: softmax(q k^T / sqrt(D) + bias) v of (N, H, L, D), in powers of 2.

    bias: floats (L, S), with -inf as long as every row keeps one key.
    """
    scores = q @ k.mT * (q.shape[-1] ** -0.5 / np.log(2))
    if bias is not None:
        scores = scores + bias / np.log(2)
    powers = torch.exp2(scores - scores.amax(-1, keepdim=True))
    return powers @ v / powers.sum(-1, keepdim=True)
