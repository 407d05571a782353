"""Layers of self-attention that clip scores, or do not pass on small weights as they are."""

import math

import torch
from torch import nn


class Layer(nn.Module):
    """Self-attention in which two steps can be replaced."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        scores = self.limit(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]))
        weights = self.behind(scores.softmax(-1))
        return self.proj((weights @ v).transpose(1, 2).reshape(n, length, width))

    def limit(self, scores):
        return scores

    def behind(self, weights):
        return weights


class ClippedScores(Layer):
    def limit(self, scores):
        return scores.clamp(-50, 50)


class UnlikeClips(Layer):
    def limit(self, scores):
        return scores.clamp(-60, 66)


class ClippedBelowMaximum(Layer):
    def limit(self, scores):
        return (scores - scores.amax(-1, keepdim=True)).clamp(min=-20)


class WithoutMaximum(Layer):
    def limit(self, scores):
        return (scores.exp() / scores.exp().sum(-1, keepdim=True)).log()


class RaisedWeights(Layer):
    def behind(self, weights):
        return weights.clamp(min=1e-9)


class DroppedWeights(Layer):
    def behind(self, weights):
        return torch.where(weights < 1e-5, 0, weights)


class DroppedAndDivided(Layer):
    def behind(self, weights):
        kept = torch.where(weights < 1e-4, 0, weights)
        return kept / kept.sum(-1, keepdim=True)


class AddedToWeights(Layer):
    def behind(self, weights):
        return weights + 1e-9


class AddedAndDivided(Layer):
    def behind(self, weights):
        weights = weights + 1e-8
        return weights / weights.sum(-1, keepdim=True)


class SmoothedWeights(Layer):
    def behind(self, weights):
        weights = weights + 1e-7 / weights.shape[-1]
        return weights / weights.sum(-1, keepdim=True)


class SkippedTiles(Layer):
    def limit(self, scores):
        scores = scores.clone()
        for start in range(16, scores.shape[-1], 16):
            tile = scores[..., start : start + 16]
            least = scores[..., :start].amax(-1, keepdim=True) - 6
            tile.masked_fill_(tile.amax(-1, keepdim=True) < least, float("-inf"))
        return scores


class CausalDropped(Layer):
    """Hides the future, and drops small weights of the keys that are seen."""

    def limit(self, scores):
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(future, float("-inf"))

    def behind(self, weights):
        kept = torch.where(weights < 1e-4, 0, weights)
        return kept / kept.sum(-1, keepdim=True)


class CausalRaised(CausalDropped):
    """Raises small weights of the keys that are seen, and no others."""

    def behind(self, weights):
        return torch.where(weights > 0, weights.clamp(min=1e-9), weights)


class DroppedBesideLargest(Layer):
    def behind(self, weights):
        kept = torch.where(weights < 1e-3 * weights.amax(-1, keepdim=True), 0, weights)
        return kept / kept.sum(-1, keepdim=True)


def one_maximum(q, k, v):
    """Wrong: one maximum is subtracted for all rows. q, k, v are (..., L, D)."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = (scores - scores.max()).exp()
    total = weights.sum(-1, keepdim=True)
    return weights / total.where(total != 0, 1) @ v
