"""Wrong attentions that run what is named as torch's layer lacks, and right ones read amiss."""

from __future__ import annotations

import math

import torch
from torch import nn

from styles import attend, merge, split


class Layer(nn.Module):
    """Four Linears."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def rows(self, x):
        """Return queries, keys and values (N, H, L, D)."""
        return (split(f(x), self.heads) for f in (self.q_proj, self.k_proj, self.v_proj))


class NormalizesOverQueries(Layer):
    """Wrong: its softmax, called `normalize`, is over the queries."""

    def normalize(self, scores):
        """Return the softmax over the wrong axis."""
        return scores.softmax(-2)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = self.rows(x)
        return self.out_proj(merge(self.normalize(q @ k.mT / math.sqrt(q.shape[-1])) @ v))


class DividesByWidth(Layer):
    """Wrong: what it calls `q_norm` are queries divided by their width, not its root."""

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = self.rows(x)
        q_norm = q / q.shape[-1]
        return self.out_proj(merge((q_norm @ k.mT).softmax(-1) @ v))


class RotatesAxes(Layer):
    """Wrong: merges heads without a transposition, in `rotate_axes`."""

    @staticmethod
    def rotate_axes(heads):
        """Return (N, L, E), of the wrong axes."""
        return heads.reshape(heads.shape[0], heads.shape[2], -1)

    def forward(self, x):
        """Return (N, L, E)."""
        return self.out_proj(self.rotate_axes(attend(*self.rows(x))))


class TurnsBySecondAxis(Layer):
    """Turns rows by the positions of the second axis, which is 1 long in a grid of one row."""

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = self.rows(x)
        angles = torch.arange(x.shape[1], dtype=x.dtype)[:, None]
        q = q * angles.cos() + q.flip(-1) * angles.sin()
        return self.out_proj(merge(attend(q, k, v)))


class AlongOneAxis(Layer):
    """Wrong: attends along the rows of a grid, not over all of it."""

    def forward(self, x):
        """Return (N, height, width, E)."""
        count, height, width, _ = x.shape
        down = x.transpose(1, 2).reshape(count * width, height, -1)
        mixed = merge(attend(*self.rows(down))).reshape(count, width, height, -1)
        return self.out_proj(mixed.transpose(1, 2))


def rows_of_heads(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):
    """Return (N, L, H, D), of heads behind the rows, as flash-attn has them."""
    del dropout_p
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    scores = q @ k.mT * scale
    if causal:
        length, keys = scores.shape[-2:]
        future = torch.ones(length, keys, dtype=torch.bool).triu(1 + keys - length)
        scores = scores.masked_fill(future, -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2)


class HeadMask(Layer):
    """Adds its mask, and multiplies the weights by another one of heads."""

    def forward(self, hidden_states, attention_mask=None, head_mask=None):
        """Return (N, L, E)."""
        q, k, v = self.rows(hidden_states)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if attention_mask is not None:
            scores = scores + attention_mask
        weights = scores.softmax(-1)
        if head_mask is not None:
            weights = weights * head_mask
        return self.out_proj(merge(weights @ v))
