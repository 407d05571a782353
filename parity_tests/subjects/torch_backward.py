"""Attention in torch with a backward of its own, right and wrong."""

from __future__ import annotations

import torch


class Softmax(torch.autograd.Function):
    """The softmax of the last axis."""

    @staticmethod
    def forward(ctx, scores):
        """Return the weights."""
        weights = torch.softmax(scores, dim=-1)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx, d_weights):
        """Return the gradient of the scores."""
        (weights,) = ctx.saved_tensors
        return weights * (d_weights - (weights * d_weights).sum(dim=-1, keepdim=True))


class Diagonal(Softmax):
    """The same with a backward that leaves out what the sum of a row does."""

    @staticmethod
    def backward(ctx, d_weights):
        """Return something like the gradient of the scores."""
        (weights,) = ctx.saved_tensors
        return weights * d_weights


def attend(Q, K, V, n_heads, softmax):
    """Attend with several heads."""
    q, k, v = (a.unflatten(1, (n_heads, -1)).transpose(0, 1) for a in (Q, K, V))
    weights = softmax.apply(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5)
    return (weights @ v).transpose(0, 1).flatten(1)


def right(Q, K, V, n_heads):
    """Attend with a right backward."""
    return attend(Q, K, V, n_heads, Softmax)


def wrong(Q, K, V, n_heads):
    """Attend with a wrong backward."""
    return attend(Q, K, V, n_heads, Diagonal)


def detached(Q, K, V, n_heads):
    """Attend without gradients."""
    return right(Q.detach(), K.detach(), V.detach(), n_heads)
