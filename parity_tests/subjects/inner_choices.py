"""Layers that are built with an attention, of several in their file."""

from collections.abc import Callable

from torch import nn

from styles import attend, merge, split


def attention_of_heads(q, k, v):
    """Return (N, H, L, D)."""
    return attend(q, k, v)


class DoubledAttention(nn.Module):
    """Doubles the scores."""

    def forward(self, q, k, v):
        """Return (N, H, L, D)."""
        return attend(2 * q, k, v)


class Undecided(nn.Module):
    """Is built with an attention that nothing names."""

    def __init__(self, d_model, n_heads, attn: Callable):
        super().__init__()
        self.heads, self.attn = n_heads, attn
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(f(x), self.heads) for f in (self.wq, self.wk, self.wv))
        return self.wo(merge(self.attn(q, k, v)))


class Annotated(Undecided):
    """Is built with the class that the annotation names."""

    def __init__(self, d_model, n_heads, attn: DoubledAttention):
        super().__init__(d_model, n_heads, attn)
