"""Layers whose names, documentation or code say that they are causal, and that hide no future."""

import math

import torch
from torch import nn


class _Layer(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def weights(self, scores):
        return scores.softmax(-1)

    def hide(self, scores, mask):
        if mask is None:
            return scores
        return scores.masked_fill(mask[:, None, None, :], float("-inf"))

    def attend(self, x, mask=None):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        weights = self.weights(self.hide(scores, mask))
        return self.out_proj((weights @ v).transpose(1, 2).reshape(x.shape))

    def forward(self, x):
        return self.attend(x)


class Forgotten(_Layer):
    """Causal multi-head attention of the rows of x, (N, L, E)."""


class Multiplied(_Layer):
    """Masked multi-head self-attention, (N, L, E)."""

    def weights(self, scores):
        rows = scores.shape[-1]
        return (scores * torch.tril(torch.ones(rows, rows, dtype=scores.dtype))).softmax(-1)


class Inverted(_Layer):
    def weights(self, scores):
        rows = scores.shape[-1]
        seen = torch.triu(torch.ones(rows, rows, dtype=torch.bool))
        return scores.masked_fill(~seen, float("-inf")).softmax(-1)


class HidesNothing(_Layer):
    def weights(self, scores):
        rows = scores.shape[-1]
        # Mask for causal attention: the keys behind a query get -inf.
        later = torch.triu(torch.zeros(rows, rows, dtype=torch.bool), diagonal=1)
        return scores.masked_fill(later, float("-inf")).softmax(-1)


class InvertedBesidePadding(Inverted):
    """Causal multi-head attention; key_padding_mask (N, L) is True for padding."""

    def weights(self, scores):
        rows = scores.shape[-1]
        seen = torch.triu(torch.ones(rows, rows, dtype=torch.bool))
        return scores.masked_fill(~seen, -1e30).softmax(-1)

    def forward(self, x, key_padding_mask=None):
        return self.attend(x, key_padding_mask)


class MergedUnmoved(_Layer):
    """Causal multi-head attention; its rule is right, and its heads are merged by a reshape."""

    def attend(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return self.out_proj((weights @ v).reshape(x.shape))


class Bidirectional(_Layer):
    """Attention of the rows of x, (N, L, E). It has no causal mask: each row sees all."""


class LeftForLater(_Layer):
    def weights(self, scores):
        # TODO: the causal mask.
        return scores.softmax(-1)


class MasksForOthers(_Layer):
    """Attention of the rows of x, (N, L, E); mask (N, L) is True for what is hidden."""

    @staticmethod
    def triangle(length):
        """Return a mask that hides the future, for a decoder."""
        return ~torch.tril(torch.ones(length, length, dtype=torch.bool))

    def forward(self, x, mask=None):
        return self.attend(x, mask)


class SeesNeighbours(_Layer):
    def weights(self, scores):
        rows = scores.shape[-1]
        near = torch.ones(rows, rows, dtype=torch.bool).tril(2).triu(-2)
        return scores.masked_fill(~near, float("-inf")).softmax(-1)
