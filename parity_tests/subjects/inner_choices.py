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


class FullAttention(nn.Module):
    """What torch computes, by its name; it comes behind the function that fits too."""

    def forward(self, q, k, v):
        """Return (N, H, L, D)."""
        return attend(q, k, v)


class SomeFit(nn.Module):
    """Is built with an attention, which it does not say by an annotation."""

    def __init__(self, d_model, n_heads, attn: Callable):
        super().__init__()
        self.heads, self.attn = n_heads, attn
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(f(x), self.heads) for f in (self.wq, self.wk, self.wv))
        return self.wo(merge(self.attn(q, k, v)))


class Annotated(SomeFit):
    """Is built with the class that the annotation names."""

    def __init__(self, d_model, n_heads, attn: DoubledAttention):
        super().__init__(d_model, n_heads, attn)


class NoneFits(SomeFit):
    """Wrong: divides the queries by 3; whether its attentions multiply them nothing says."""

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(f(x), self.heads) for f in (self.wq, self.wk, self.wv))
        return self.wo(merge(self.attn(q / 3, k, v)))
