"""Layers with a window that is called `left`, is asked in steps, or is a number of their own."""

from __future__ import annotations

import torch

from windows import OfConfiguration, Sizes, attend, behind


class LooksBack(OfConfiguration):
    """Right: rows see themselves and those on the left; so do those of a `stream` of chunks."""

    overwrites = False

    def __init__(self, embed_dim, num_heads, left):
        super().__init__(Sizes(embed_dim, num_heads, None))
        self.left = left

    def stream(self, x, state=None):
        parts = self.qkv_proj(x).chunk(3, -1)
        q, k, v = (p.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p in parts)
        if state is not None:
            k, v = (torch.cat(pair, 2) for pair in zip(state, (k, v), strict=True))
            if self.overwrites:  # a buffer of one window, into which new rows are written first
                k, v = k[:, :, -self.left - 1 :], v[:, :, -self.left - 1 :]
        before = k.shape[2] - q.shape[2]
        distance = behind(q, k) + before
        output = attend(q, k, v, (distance >= 0) & (distance <= self.left))
        first = max(k.shape[2] - self.left, 0)
        kept = k[:, :, first:], v[:, :, first:]
        return self.out_proj(output.transpose(1, 2).flatten(2)), kept

    def forward(self, x):
        return self.stream(x)[0]


class LooksBackOverwritten(LooksBack):
    """Wrong: the first of several new rows miss keys that the last of them have overwritten."""

    overwrites = True


class OfItself(OfConfiguration):
    """Right: it has a window of its own, of 16 keys."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(Sizes(embed_dim, num_heads, None))
        self.window = 16

    def forward(self, x):
        """Return (N, L, E)."""
        return super().forward(x)


class OfItselfShort(OfItself):
    """Wrong: windows of more than 8 keys have one less."""

    def forward(self, x):
        """Return (N, L, E)."""
        asked = self.window
        self.window = asked - (asked > 8)
        output = super().forward(x)
        self.window = asked
        return output


class OfNoEffect(OfItself):
    """Right: its number is of another thing."""

    def forward(self, x):
        """Return (N, L, E)."""
        asked, self.window = self.window, None
        output = super().forward(x)
        self.window = asked
        return output
