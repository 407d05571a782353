"""Attentions that torch holds in objects of its own, and kernels with flash-attn's parameters."""

import functools
import math
import warnings

import torch
from torch import nn


def attend(q, k, v, scale=None, causal=False):
    """Softmax of scaled scores over (..., L, D); the causal rule counts from the last key."""
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        rows, columns = scores.shape[-2:]
        hidden = torch.ones(rows, columns, dtype=torch.bool).triu(1 + columns - rows)
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, -1) @ v


def gradients(grad, q, k, v, causal, scale):
    """Return dQ, dK, dV of ``attend``."""
    scores = q @ k.transpose(-1, -2) * scale
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    p = torch.softmax(scores, -1)
    dp = grad @ v.transpose(-1, -2)
    ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * scale
    return ds @ k, ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ grad


class Kernel(torch.autograd.Function):
    """Forward and backward by hand, called by `apply`."""

    @staticmethod
    def forward(ctx, q, k, v, causal, sm_scale):
        """Return the output."""
        ctx.save_for_backward(q, k, v)
        ctx.given = causal, sm_scale
        return attend(q, k, v, sm_scale, causal)

    @staticmethod
    def backward(ctx, grad):
        """Return dQ, dK, dV."""
        return *gradients(grad, *ctx.saved_tensors, *ctx.given), None, None


class UnscaledKeys(Kernel):
    """The gradient of the keys lacks the scale."""

    @staticmethod
    def backward(ctx, grad):
        """Return dQ, dK / scale, dV."""
        dq, dk, dv = gradients(grad, *ctx.saved_tensors, *ctx.given)
        return dq, dk / ctx.given[1], dv, None, None


kernel = Kernel.apply
plain = functools.partial(attend, causal=False)


def in_torchscript(query, key, value, causal: bool = False):
    """Attention in what TorchScript knows of torch."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if causal:
        hidden = torch.ones(scores.shape[-2], scores.shape[-1], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, -1) @ value


with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    scripted = torch.jit.script(in_torchscript)


def compiled():
    """Return a function that takes NumPy's arrays too, in some operations."""
    return torch.compile(attend, backend="eager")


class Layer(nn.Module):
    """Packed projections as Linears."""

    def __init__(self, dim, num_heads):
        """Build the Linears."""
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        """Return attention of every row of x over all."""
        split = self.qkv(x).reshape(*x.shape[:2], 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        return self.out(attend(*split).transpose(1, 2).reshape(x.shape))


def compiled_layer():
    """Return a layer that torch.compile has wrapped."""
    return torch.compile(Layer(12, 3), backend="eager")


def traced_layer():
    """Return a layer of which its calls are left."""
    with warnings.catch_warnings(action="ignore"):
        return torch.jit.trace(Layer(12, 3), torch.zeros(1, 2, 12))


def flash(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):
    """Attention over (N, L, H, D)."""
    heads = (each.transpose(1, 2) for each in (q, k, v))
    mixed = attend(*heads, softmax_scale, causal).transpose(1, 2)
    return torch.dropout(mixed, dropout_p, train=dropout_p > 0)


def flash_dividing(q, k, v, softmax_scale=None):
    """Attention over (N, L, H, D) whose scores are divided by what is called a scale."""
    scale = None if softmax_scale is None else 1 / softmax_scale
    return flash(q, k, v, softmax_scale=scale)


class ByHead(nn.Module):
    """Bare arrays applied as X @ W, their columns head by head: q, k, v of one head, then the next."""

    def __init__(self, d_model, n_head):
        """Make the arrays."""
        super().__init__()
        self.n_head = n_head
        self.qkv = nn.Parameter(torch.zeros(d_model, 3 * d_model))
        self.proj = nn.Parameter(torch.zeros(d_model, d_model))

    def values(self, v):
        """Return what is mixed."""
        return v

    def forward(self, x):
        """Return attention of every row of x over all."""
        split = (x @ self.qkv).view(*x.shape[:2], self.n_head, 3, -1).permute(3, 0, 2, 1, 4)
        q, k, v = split
        mixed = attend(q, k, self.values(v)).transpose(1, 2)
        return mixed.reshape(x.shape) @ self.proj, None


class ByHeadDetached(ByHead):
    """No gradient goes to the values."""

    def values(self, v):
        """Return them cut off."""
        return v.detach()


def weights_as_arrays(x, Wq, Wk, Wv, Wo, num_heads):  # noqa: N803  (as people write it)
    """Attention with given weights, applied as X @ W, over batches alone."""
    n, rows, _ = x.shape
    q, k, v = ((x @ w).view(n, rows, num_heads, -1).transpose(1, 2) for w in (Wq, Wk, Wv))
    return attend(q, k, v).transpose(1, 2).reshape(n, rows, -1) @ Wo


def weights_swapped_back(x, Wq, Wk, Wv, Wo, num_heads):  # noqa: N803  (as people write it)
    """The same with a gradient of Wo that is transposed."""
    swapped = (Wo.detach() * 2 - Wo.T) - (Wo.detach() - Wo.T.detach())
    return weights_as_arrays(x, Wq, Wk, Wv, swapped, num_heads)


def flash_scaled_twice(q, k, v, softmax_scale=None):
    """Attention over (N, L, H, D) that multiplies a given scale by 1 / sqrt(D) once more."""
    scale = None if softmax_scale is None else softmax_scale / math.sqrt(q.shape[-1])
    return flash(q, k, v, softmax_scale=scale)


def flash_sharpened(q, k, v, scale=1.0):
    """Attention over (N, L, H, D) whose scaled scores are multiplied by a number, 1 at first."""
    return flash(q, k, v, softmax_scale=scale / math.sqrt(q.shape[-1]))
