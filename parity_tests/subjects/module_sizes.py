"""Layers that read their sizes of their module, when they are built and in each call."""

from __future__ import annotations

import torch.nn.attention.flex_attention
from torch import nn

n_heads = 12
d_model = 768
d_k = d_v = 64
LAST_DIM = -1
HIDDEN_SCORE = -1e9


class OfModule(nn.Module):
    """Right: an input is added to the output, and a norm without weights is behind it."""

    factor = 1.0

    def __init__(self):
        super().__init__()
        self.W_Q = nn.Linear(d_model, d_k * n_heads, bias=False)
        self.W_K = nn.Linear(d_model, d_k * n_heads, bias=False)
        self.W_V = nn.Linear(d_model, d_v * n_heads, bias=False)
        self.linear = nn.Linear(d_v * n_heads, d_model)
        self.norm = nn.LayerNorm(d_model, elementwise_affine=False)

    def heads(self, rows):
        return rows.unflatten(-1, (n_heads, d_k)).transpose(1, 2)

    def forward(self, Q, K, V):
        q, k, v = self.heads(self.W_Q(Q)), self.heads(self.W_K(K)), self.heads(self.W_V(V))
        scores = q @ k.mT * (self.factor / d_k**0.5)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return self.norm(self.linear(mixed) + Q)


stale_head_dim = 32


class OfStaleWidth(OfModule):
    """Wrong: scores are scaled by a width that is not that of its heads."""

    def forward(self, Q, K, V):
        q, k, v = self.heads(self.W_Q(Q)), self.heads(self.W_K(K)), self.heads(self.W_V(V))
        weights = (q @ k.mT / stale_head_dim**0.5).softmax(-1)
        return self.norm(self.linear((weights @ v).transpose(1, 2).flatten(2)) + Q)


head_dim = d_k


def divided(scores):
    return scores / head_dim**0.5


def doubled(scores):
    return 2 * scores / head_dim**0.5


class OfFunction(OfModule):
    """Right: the width that scales is read by a function of the module alone."""

    def scaled(self, scores):
        return divided(scores)

    def forward(self, Q, K, V):
        q, k, v = self.heads(self.W_Q(Q)), self.heads(self.W_K(K)), self.heads(self.W_V(V))
        weights = self.scaled(q @ k.mT).softmax(-1)
        return self.norm(self.linear((weights @ v).transpose(1, 2).flatten(2)) + Q)


class Answers(dict):
    """A dictionary that raises KeyError for an attribute that it has not."""

    __module__ = __name__

    def __getattr__(self, name):
        return self[name]


flags = Answers(verbose=False)


class OfFlags(OfFunction):
    """Right: it reads an object of its module that answers attributes by its items."""

    def forward(self, Q, K, V):
        found = super().forward(Q, K, V)
        return found.clone() if flags.verbose else found


class OfDoublingFunction(OfFunction):
    """Wrong: the scale of the function is twice what it should be."""

    def scaled(self, scores):
        return doubled(scores)


class OfModuleDoubled(OfModule):
    """Wrong: the scale is twice what it should be."""

    factor = 2.0


class OfOwnSizes(nn.Module):
    """Right: built by sizes of its own, and numbers of the module are no sizes."""

    scale_of = "own"

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(embed_dim, embed_dim)
        self.key = nn.Linear(embed_dim, embed_dim)
        self.value = nn.Linear(embed_dim, embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            each.unflatten(LAST_DIM, (self.num_heads, -1)).transpose(1, 2)
            for each in (self.query(query), self.key(key), self.value(value))
        )
        width = d_k if self.scale_of == "module" else q.shape[LAST_DIM]
        scores = q @ k.mT / width**0.5
        if mask is not None:
            scores = scores.masked_fill(mask, HIDDEN_SCORE)
        return self.out((self.weights(scores) @ v).transpose(1, 2).flatten(2))

    def weights(self, scores):
        return scores.softmax(LAST_DIM)


class OfStaleScale(OfOwnSizes):
    """Wrong: the scale is that of the module's width of a head."""

    scale_of = "module"


class RMSNorm(nn.Module):
    """A norm without weights, of the name that torch gives one with them."""

    def forward(self, rows):
        return rows / rows.square().mean(-1, keepdim=True).sqrt()


class NormedWhereMasked(OfOwnSizes):
    """Wrong: queries are normalised where there is a mask."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.norm = RMSNorm()

    def forward(self, query, key, value, mask=None):
        return super().forward(query if mask is None else self.norm(query), key, value, mask)


class SoftmaxNormalizer(nn.Module):
    """The softmax, under a name that begins like that of a norm."""

    def forward(self, scores):
        return scores.softmax(-1)


class OfNormalizer(OfOwnSizes):
    """Right: a module computes the softmax."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.normalizer = SoftmaxNormalizer()

    def weights(self, scores):
        return self.normalizer(scores)


class NormedQueries(OfModule):
    """Without counterpart: queries and keys are normalised, without weights."""

    def __init__(self):
        super().__init__()
        self.norm = nn.Identity()
        self.q_norm = nn.LayerNorm(d_k, elementwise_affine=False)

    def heads(self, rows):
        return self.q_norm(super().heads(rows))


class Flexible(nn.Module):
    """Right: torch's flex_attention, which tracks no gradients on a CPU."""

    scale = 1.0

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(embed_dim, embed_dim)
        self.key = nn.Linear(embed_dim, embed_dim)
        self.value = nn.Linear(embed_dim, embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, value):
        heads = (
            each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for each in (self.query(query) * self.scale, self.key(key), self.value(value))
        )
        flex_attention = torch.nn.attention.flex_attention.flex_attention
        return self.out(flex_attention(*heads).transpose(1, 2).flatten(2))


class FlexibleDoubled(Flexible):
    """Wrong: the queries are doubled."""

    scale = 2.0


def width_of_module(x, w_q, w_k, w_v, w_o, n_heads):
    """Right: x is (L, E), and E that of the module."""
    head_dim = d_model // n_heads
    q, k, v = (
        (x @ w).reshape(len(x), n_heads, head_dim).transpose(0, 1) for w in (w_q, w_k, w_v)
    )
    mixed = (q @ k.mT * head_dim**-0.5).softmax(-1) @ v
    return mixed.transpose(0, 1).reshape(len(x), d_model) @ w_o


def scale_of_module(x, w_q, w_k, w_v, w_o, n_heads):
    """Wrong: the scale is that of the module, and the heads are as wide as the arrays say."""
    q, k, v = ((x @ w).unflatten(-1, (n_heads, -1)).transpose(0, 1) for w in (w_q, w_k, w_v))
    mixed = (q @ k.mT * d_k**-0.5).softmax(-1) @ v
    return mixed.transpose(0, 1).flatten(1) @ w_o
