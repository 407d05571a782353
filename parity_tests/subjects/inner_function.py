"""Layers that are built with the attention function of the same file."""

from torch import nn

from styles import attend, merge, split


def attention_of_heads(q, k, v):
    """Return (N, H, L, D)."""
    return attend(q, k, v)


class WithFunction(nn.Module):
    """Calls what it is built with."""

    def __init__(self, d_model, n_heads, attn_fn):
        super().__init__()
        self.heads, self.attn_fn = n_heads, attn_fn
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(f(x), self.heads) for f in (self.wq, self.wk, self.wv))
        return self.wo(merge(self.attn_fn(q, k, v)))


class ScalesTwice(WithFunction):
    """Wrong: divides the queries, which the function does too."""

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(f(x), self.heads) for f in (self.wq, self.wk, self.wv))
        return self.wo(merge(self.attn_fn(q / q.shape[-1] ** 0.5, k, v)))
