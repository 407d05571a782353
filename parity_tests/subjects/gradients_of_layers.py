"""Gradients of layers of Linears and of functions of weights, right ones and wrong ones."""

from __future__ import annotations

import torch
from torch import nn


class Packed(nn.Module):
    """One Linear for q, k and v, head by head; an additive mask (N, 1, L, S) or broadcast to it."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, attn_bias=None):
        """Return (N, L, E)."""
        split = self.qkv(x).unflatten(-1, (self.num_heads, 3, -1)).permute(3, 0, 2, 1, 4)
        q, k, v = split
        scores = q @ self.keys(k).mT / q.shape[-1] ** 0.5
        if attn_bias is not None:
            scores = scores + self.bias(attn_bias)
        mixed = scores.softmax(dim=-1) @ v
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def keys(self, k):
        """Return the keys."""
        return k

    def bias(self, attn_bias):
        """Return what is added."""
        return attn_bias


class KeysDetached(Packed):
    """Wrong: no gradient reaches the keys."""

    def keys(self, k):
        """Return the keys, cut off."""
        return k.detach()


class BiasDetached(Packed):
    """Wrong: no gradient reaches the added mask."""

    def bias(self, attn_bias):
        """Return what is added, cut off, and a term without effect."""
        return attn_bias.detach() + 0 * attn_bias.clamp(min=-1)


def of_weights(X: torch.Tensor, Wq, Wk, Wv, H):
    """Return attention of X with heads as blocks of columns."""
    q, k, v = ((X @ W).unflatten(-1, (H, -1)).transpose(-2, -3) for W in (Wq, Wk, Wv))
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)
    return (weights @ v).transpose(-2, -3).flatten(-2)


def of_weights_halved(X: torch.Tensor, Wq, Wk, Wv, H):
    """Wrong: half of the gradient of Wq is cut off."""
    return of_weights(X, 0.5 * Wq + 0.5 * Wq.detach(), Wk, Wv, H)
