"""A kernel whose backward returns the gradient of a bias (L, S), whatever its forward broadcasts."""

from __future__ import annotations

import torch


class Biased(torch.autograd.Function):
    """Right: attention of (N, H, L, D) with a bias (L, S) that is added to the scores."""

    factor = 1.0

    @classmethod
    def weights(cls, q, k, bias):
        """Return softmax(q k^T / sqrt(D) + bias)."""
        return (q @ k.mT * q.shape[-1] ** -0.5 + bias).softmax(dim=-1)

    @classmethod
    def forward(cls, ctx, q, k, v, bias):
        """Return (N, H, L, D)."""
        ctx.save_for_backward(q, k, v, bias)
        return cls.weights(q, k, bias) @ v

    @classmethod
    def backward(cls, ctx, d_out):
        """Return the gradients of all four, that of the bias summed over samples and heads."""
        q, k, v, bias = ctx.saved_tensors
        weights = cls.weights(q, k, bias)
        d_weights = d_out @ v.mT
        rows = (weights * d_weights).sum(dim=-1, keepdim=True)
        d_scores = weights * (d_weights - rows)
        scaled = d_scores * q.shape[-1] ** -0.5
        d_bias = cls.factor * d_scores.sum(dim=(0, 1))
        return scaled @ k, scaled.mT @ q, weights.mT @ d_out, d_bias


class BiasedTwice(Biased):
    """Wrong: the gradient of the bias is doubled."""

    factor = 2.0
