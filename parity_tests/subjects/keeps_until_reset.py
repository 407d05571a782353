"""Decoders that keep keys and values in themselves, until a method is called."""

from __future__ import annotations

import torch
from torch import nn

from styles import merge, split


class Decoder(nn.Module):
    """Right: causal, (N, L, E); `reset_cache()` begins a new sequence."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv_proj = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        self.keys = self.values = None

    def reset_cache(self):
        """Forget all rows."""
        self.keys = self.values = None

    def forward(self, x):
        """Return (N, L, E) of rows behind those of earlier calls."""
        q, k, v = (split(each, self.num_heads) for each in self.qkv_proj(x).chunk(3, -1))
        if self.keys is not None:
            k, v = torch.cat((self.keys, k), 2), torch.cat((self.values, v), 2)
        self.keys, self.values = k, v
        hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
        scores = q @ k.mT * q.shape[-1] ** -0.5
        hidden = hidden.triu(k.shape[2] - q.shape[2] + 1)
        return self.out_proj(merge(scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v))


class ForgetsLittle(Decoder):
    """Wrong: the first sequence alone begins anew; later ones go on behind the one before."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.count = 0

    def reset_cache(self):
        """Forget the rows of the first three sequences."""
        self.count += 1
        if self.count < 4:
            super().reset_cache()


class NeverForgets(Decoder):
    """Wrong: nothing begins a new sequence."""

    reset_cache = None


class DrawnAnew(Decoder):
    """Wrong: `reset` draws other weights, and is no method that forgets rows."""

    reset_cache = None

    def reset(self):
        """Draw the weights."""
        self.qkv_proj.reset_parameters()


class CountsCalls(Decoder):
    """Wrong: each call counts as one row, so that rows behind a longer one overwrite its keys."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.position = 0

    def reset_cache(self):
        """Forget all rows."""
        super().reset_cache()
        self.position = 0

    def forward(self, x):
        """Return (N, L, E) of rows behind those of earlier calls."""
        if self.keys is not None:
            self.keys, self.values = (
                each[:, :, : self.position] for each in (self.keys, self.values)
            )
        self.position += 1
        return super().forward(x)


class Smooths(Decoder):
    """Right: what it keeps is no row; a mean of the inputs that no call reads until `reset`."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.times = 1.0

    def reset_cache(self):
        """Return to the first factor."""
        super().reset_cache()
        self.times = 1.0

    def forward(self, x):
        """Return (N, L, E); in each later call doubled once more."""
        self.keys = self.values = None
        self.times *= 2
        return super().forward(x) * (self.times / 2)
