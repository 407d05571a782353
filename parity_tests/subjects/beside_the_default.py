"""Attentions that are wrong beside the calls that come to mind first."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional


class DropsByConfig(nn.Module):
    """Wrong: its configuration sets a dropout that falls in evaluation too."""

    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.n_head, self.dropout = config.n_head, config.dropout

    def rate(self):
        """Return the probability of this call."""
        return self.dropout

    def forward(self, x):
        """Return (N, L, E)."""
        parts = self.c_attn(x).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for t in parts)
        out = functional.scaled_dot_product_attention(q, k, v, dropout_p=self.rate())
        return self.c_proj(out.transpose(1, 2).flatten(2))


class DropsInTraining(DropsByConfig):
    """Right: in training alone."""

    def rate(self):
        """Return the probability of this call."""
        return self.dropout if self.training else 0.0


class NoDropout(DropsByConfig):
    """Right: its configuration is asked for no dropout."""

    def __init__(self, config):
        nn.Module.__init__(self)
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.n_head, self.dropout = config.n_head, 0.0


class ForgetsABias(nn.Module):
    """Wrong where `memory` is given: the bias of the values is left out there."""

    def __init__(self, d_model, nhead):
        super().__init__()
        self.nhead = nhead
        self.in_proj_weight = nn.Parameter(torch.randn(3 * d_model, d_model))
        self.in_proj_bias = nn.Parameter(torch.randn(3 * d_model))

    def forward(self, tgt, memory=None):
        """Return (N, L, E)."""
        weights, biases = self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3)
        inputs = (tgt, tgt, tgt) if memory is None else (tgt, memory, memory)
        biases = biases if memory is None else (*biases[:2], None)
        given = zip(inputs, weights, biases, strict=True)
        projected = (functional.linear(*each) for each in given)
        q, k, v = (t.unflatten(-1, (self.nhead, -1)).transpose(1, 2) for t in projected)
        return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class _Attend(torch.autograd.Function):
    """Attention with a backward pass by hand."""

    scaled = True

    @staticmethod
    def forward(ctx, q, k, v, key_factor):
        """Return P V."""
        scale = 1 / math.sqrt(q.shape[-1])
        p = torch.softmax(q @ k.mT * scale, -1)
        ctx.save_for_backward(q, k, v, p)
        ctx.scale, ctx.key_factor = scale, key_factor
        return p @ v

    @staticmethod
    def backward(ctx, grad):
        """Return dQ, dK and dV."""
        q, k, v, p = ctx.saved_tensors
        dp = grad @ v.mT
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * ctx.scale
        return ds @ k, ds.mT @ q * ctx.key_factor, p.mT @ grad, None


def _through_a_helper(q, k, v, key_factor):
    return _Attend.apply(q, k, v, key_factor)


def backward_right(q, k, v):
    """Right, forward and backward."""
    return _through_a_helper(q, k, v, 1.0)


def backward_wrong(q, k, v):
    """Wrong: twice the gradient of the keys."""
    return _through_a_helper(q, k, v, 2.0)


def normaliser_outside(q, k, v):
    """Wrong: the gradients of q and k lack what the normaliser adds to them."""
    logits = q @ k.mT / q.shape[-1] ** 0.5
    with torch.no_grad():
        normaliser = logits.logsumexp(-1, keepdim=True)
    return (logits - normaliser).exp() @ v


@torch.no_grad()
def _normaliser(logits):
    return logits.logsumexp(-1, keepdim=True)


def normaliser_decorated(q, k, v):
    """Wrong: the same, by a function that a decorator takes out of the graph."""
    logits = q @ k.mT / q.shape[-1] ** 0.5
    return (logits - _normaliser(logits)).exp() @ v


def keys_by_data(q, k, v):
    """Wrong: the keys get no gradient."""
    return (q @ k.data.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def in_tiles(q, k, v):
    """Right: of no keys nothing is computed, that has a gradient or not; the maximum needs none."""
    top = q.new_full((*q.shape[:-1], 1), -torch.inf)
    total, mixed = torch.zeros_like(top), q.new_zeros((*q.shape[:-1], v.shape[-1]))
    for start in range(0, k.shape[-2], 32):
        logits = q @ k[..., start : start + 32, :].mT / q.shape[-1] ** 0.5
        with torch.no_grad():
            larger = torch.maximum(top, logits.amax(-1, keepdim=True))
            kept = (top - larger).exp()
        powers = (logits - larger).exp()
        total = total * kept + powers.sum(-1, keepdim=True)
        mixed = mixed * kept + powers @ v[..., start : start + 32, :]
        top = larger
    return mixed / total


def maximum_outside(q, k, v):
    """Right: the maximum cancels, and takes no part in the gradients."""
    logits = q @ k.mT / q.shape[-1] ** 0.5
    powers = (logits - logits.amax(-1, keepdim=True).detach()).exp()
    return powers / powers.sum(-1, keepdim=True) @ v


class HeadsSummed(nn.Module):
    """Right: the heads' outputs are projected one by one, and summed."""

    def __init__(self, in_features, head_features, n_heads):
        super().__init__()
        self.queries = nn.ModuleList(nn.Linear(in_features, head_features) for _ in range(n_heads))
        self.keys = nn.ModuleList(nn.Linear(in_features, head_features) for _ in range(n_heads))
        self.values = nn.ModuleList(nn.Linear(in_features, head_features) for _ in range(n_heads))
        self.outs = nn.ModuleList(
            nn.Linear(head_features, in_features, bias=False) for _ in range(n_heads)
        )

    def forward(self, x):
        """Return (N, L, E)."""
        total = torch.zeros_like(x)
        for q, k, v, out in zip(self.queries, self.keys, self.values, self.outs, strict=True):
            scores = q(x) @ k(x).mT / q.out_features**0.5
            total = total + out(scores.softmax(-1) @ v(x))
        return total


class MergedAcrossSamples(nn.Module):
    """Wrong with several samples: of (L, N, E), and merged as if of (N, L, E)."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        """Return (L, N, E)."""
        length, samples, width = x.shape
        rows = (length, samples * self.num_heads, -1)
        q, k, v = (t.reshape(rows).transpose(0, 1) for t in self.qkv(x).chunk(3, -1))
        out = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v
        merged = out.transpose(0, 1).reshape(samples, length, width).transpose(0, 1)
        return self.out_proj(merged)
