"""Layers and functions whose weights have the rank of a head: without scores, or by a bug."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from styles import merge, split


class Layer(nn.Module):
    """Four Linears, and heads of projected rows mixed in one of several ways."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, x):
        """Return (N, L, E)."""
        projections = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (split(each(x), self.num_heads) for each in projections)
        return self.out_proj(merge(self.mixed(q, k, v)))


class SeparateSoftmaxes(Layer):
    """Without counterpart: queries compete over channels, keys over positions."""

    def mixed(self, q, k, v):
        """Return (N, H, L, D)."""
        return q.softmax(-1) @ (k.softmax(-2).mT @ v)


class SeparateInTheMiddle(SeparateSoftmaxes):
    """Without counterpart: the same, and the input is added."""

    def forward(self, x):
        """Return (N, L, E)."""
        return x + super().forward(x)


class FeatureMaps(Layer):
    """Without counterpart: elu(x) + 1 of queries and keys, and rows divided by their sum."""

    def mixed(self, q, k, v):
        """Return (N, H, L, D)."""
        q, k = functional.elu(q) + 1, functional.elu(k) + 1
        return (q @ (k.mT @ v)) / (q @ k.sum(-2)[..., None])


def separate_softmaxes(query, key, value):
    """Without counterpart: a softmax of each, for arrays (..., L, D)."""
    odds_q, odds_k = np.exp(query), np.exp(key)
    q = odds_q / odds_q.sum(-1, keepdims=True)
    k = odds_k / odds_k.sum(-2, keepdims=True)
    return q @ (k.swapaxes(-1, -2) @ value)


class SoftmaxForgotten(Layer):
    """Wrong: scores in the place of weights."""

    def mixed(self, q, k, v):
        """Return (N, H, L, D)."""
        return q @ k.mT / q.shape[-1] ** 0.5 @ v


class DividedBySums(Layer):
    """Wrong: scores divided by their sum."""

    def mixed(self, q, k, v):
        """Return (N, H, L, D)."""
        scores = q @ k.mT
        return scores / scores.sum(-1, keepdim=True) @ v


class FirstQuery(Layer):
    """Wrong: every row gets the weights of the first query."""

    def mixed(self, q, k, v):
        """Return (N, H, L, D)."""
        return ((q[..., :1, :] @ k.mT).softmax(-1) @ v).expand_as(q)


class OverQueries(Layer):
    """Wrong: queries compete for a key."""

    def mixed(self, q, k, v):
        """Return (N, H, L, D)."""
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-2) @ v


class OverChannels(Layer):
    """Wrong: the softmax is taken over what the scores mixed."""

    def mixed(self, q, k, v):
        """Return (N, H, L, D)."""
        return (q @ k.mT / q.shape[-1] ** 0.5 @ v).softmax(-1)


class Unsplit(Layer):
    """Wrong: heads are cut from rows without turning axes."""

    def forward(self, x):
        """Return (N, L, E)."""
        shape = (x.shape[0], self.num_heads, x.shape[1], -1)
        q, k, v = (each(x).reshape(shape) for each in (self.q_proj, self.k_proj, self.v_proj))
        return self.out_proj(((q @ k.mT).softmax(-1) @ v).reshape(x.shape))


def scores_alone(query, key, value):
    """Wrong: scores in the place of weights."""
    return query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]) @ value


class Averages(Layer):
    """Wrong: the scores have no part in the weights, which are all equal."""

    def mixed(self, q, k, v):
        """Return (N, H, L, D)."""
        return torch.zeros_like(q @ k.mT).softmax(-1) @ v
