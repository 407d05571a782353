"""Layers of torch in training: right ones, and those that compute otherwise than in evaluation."""

from __future__ import annotations

import torch
from torch import nn


class Layer(nn.Module):
    """Packed projections, and scores that subclasses do the rest with."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.out = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)

    def project(self, x, past=None):
        """Return q, k and v, (N, H, L, D), keys and values behind those of earlier calls."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = (torch.cat(pair, dim=2) for pair in zip(past, (k, v)))
        return q, k, v

    def attend(self, scores, v):
        """Return the output (N, L, E) of scores."""
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class AsInEvaluation(Layer):
    """Right: in training it drops weights, and computes the same besides."""

    scales_in_training = True

    def __init__(self, embed_dim, num_heads, dropout=0.0):
        super().__init__(embed_dim, num_heads)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = self.project(x)
        scores = q @ k.mT
        if self.scales_in_training or not self.training:
            scores = scores / q.shape[-1] ** 0.5
        return self.out((self.dropout(scores.softmax(-1)) @ v).transpose(1, 2).flatten(2))


class Unscaled(AsInEvaluation):
    """Wrong in training: its scores are not scaled there."""

    scales_in_training = False


class UnscaledWithoutDropout(Unscaled):
    """Wrong in training, in a layer that never drops anything."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)


class DropsByDefault(AsInEvaluation):
    """Right: it drops in training, whatever its constructor gets."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads, 0.5)


class DropsAlways(AsInEvaluation):
    """Wrong: it drops in evaluation as well."""

    def eval(self):
        """Leave its dropout in training."""
        super().eval()
        self.dropout.train()
        return self


class CausalByDefault(Layer):
    """Right: it hides the keys behind a row, counted behind the rows of its cache."""

    behind_the_cache = True

    def forward(self, x, past_kv=None, is_causal=True):
        """Return (N, L, E) and the keys and values so far."""
        q, k, v = self.project(x, past_kv)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if is_causal:
            rows, keys = scores.shape[-2:]
            first = keys - rows if self.behind_the_cache else 0
            seen = torch.ones(rows, keys, dtype=torch.bool).tril(first)
            scores = scores.masked_fill(~seen, -torch.inf)
        return self.attend(scores, v), (k, v)


class CausalFromTheFirstKey(CausalByDefault):
    """Wrong: with a cache the rule counts the new rows from the first key."""

    behind_the_cache = False


class Masked(Layer):
    """Right: a mask hides keys, with a cache as without."""

    def forward(self, x, mask=None, past_kv=None):
        """Return (N, L, E) and the keys and values so far."""
        q, k, v = self.project(x, past_kv)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None, :] == 0, -torch.inf)
        return self.attend(scores, v), (k, v)


class Forgets(Layer):
    """Right: it keeps keys and values in itself, until `reset_cache()` is called."""

    keeps_its_place = False

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.held, self.place = None, 0

    def forward(self, x, use_cache=False):
        """Return (N, L, E)."""
        q, k, v = self.project(x, self.held if use_cache else None)
        first = self.place if use_cache else 0
        if use_cache:
            self.held, self.place = (k, v), first + x.shape[1]
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(first)
        return self.attend((q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf), v)

    def reset_cache(self):
        """Begin a sequence."""
        self.held = None
        self.place *= self.keeps_its_place


class ForgetsInPart(Forgets):
    """Wrong: the next sequence begins at the place where the one before ended."""

    keeps_its_place = True
