"""Functions whose backward pass takes a bias (L, S) alone, as documented or not."""

from __future__ import annotations

import torch
from torch.autograd import Function


class Biased(Function):
    """softmax(q k^T / sqrt(D) + bias) v.

    q, k, v (N, H, L, D); bias is None or a tensor of exactly (L, S), shared by all samples and heads.
    """

    @staticmethod
    def forward(ctx, q, k, v, bias, factor=1.0):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        weights = (scores if bias is None else scores + bias).softmax(-1)
        ctx.save_for_backward(q, k, v, weights, bias)
        ctx.factor = factor
        return weights @ v

    @staticmethod
    def backward(ctx, cotangent):
        q, k, v, weights, bias = ctx.saved_tensors
        products = cotangent @ v.mT
        of_scores = weights * (products - (products * weights).sum(-1, keepdim=True))
        of_bias = None if bias is None else torch.empty_like(bias)
        for start in range(0, k.shape[-2] if bias is not None else 0, 16):
            keys = slice(start, start + 16)
            part = of_scores[..., keys].sum(tuple(range(of_scores.ndim - 2)))
            of_bias[:, keys] = ctx.factor * part
        of_scores = of_scores / q.shape[-1] ** 0.5
        return of_scores @ k, of_scores.mT @ q, weights.mT @ cotangent, of_bias, None


def documented(q, k, v, bias=None):
    """See :class:`Biased`."""
    return Biased.apply(q, k, v, bias)


def undocumented(q, k, v, bias=None):
    """Return attention; the bias is added to the scores."""
    return Biased.apply(q, k, v, bias)


def halved(q, k, v, bias=None):
    """See :class:`Biased`."""
    return Biased.apply(q, k, v, bias, 0.5)


