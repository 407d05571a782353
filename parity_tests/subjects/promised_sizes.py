"""Attentions that serve the lengths alone that they document, and one that cannot go back of none."""

import math

import numpy as np
import torch

__all__ = ["Tiles", "of_any_lengths", "of_one_length", "tiled"]


def _near(q, k, v, window):
    length, width = q.shape[2], 2 * window + 1
    padded = [(0, 0), (0, 0), (window, window), (0, 0)]
    keys, values = np.pad(k, padded), np.pad(v, padded)
    places = np.arange(length)[:, None] + np.arange(width)
    inside = (places >= window) & (places < length + window)
    scores = np.einsum("nhld,nhlwd->nhlw", q, keys[:, :, places]) / math.sqrt(q.shape[3])
    scores = np.where(inside, scores, np.array(-np.inf, scores.dtype))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("nhlw,nhlwd->nhld", weights, values[:, :, places])


def of_one_length(q, k, v, window):
    """Attend to the positions j of the sequence with |i - j| <= window: right.

    q, k : (N, H, L, D) arrays
    v    : (N, H, L, Dv)
    """
    return _near(q, k, v, window)


def of_any_lengths(q, k, v, window):
    """Attend to the positions j with |i - j| <= window: wrong where S is unlike L.

    q : (N, H, L, D)
    k : (N, H, S, D)
    v : (N, H, S, Dv)
    """
    return _near(q, k, v, window)


class Tiles(torch.autograd.Function):
    """Tiles of 4 keys, whose gradients are joined: of none there is nothing to join."""

    @staticmethod
    def forward(ctx, q, k, v):
        """Return (N, H, L, D)."""
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        ctx.save_for_backward(q, k, v, weights)
        return weights @ v

    @staticmethod
    def backward(ctx, given):
        """Return the gradients of q, k and v."""
        q, k, v, weights = ctx.saved_tensors
        scores = given @ v.mT
        scores = weights * (scores - (scores * weights).sum(-1, keepdim=True)) / q.shape[-1] ** 0.5
        tiles = [slice(start, start + 4) for start in range(0, k.shape[-2], 4)]
        of_keys = torch.cat([scores.mT[..., each, :] @ q for each in tiles], -2)
        of_values = torch.cat([weights.mT[..., each, :] @ given for each in tiles], -2)
        return scores @ k, of_keys, of_values


def tiled(q, k, v):
    """Attend over (N, H, L, D) by tiles: right."""
    return Tiles.apply(q, k, v)
