"""Layers that add their input to their output, and normalise the sum."""

from __future__ import annotations

from torch import nn

from styles import attend, merge, split


class PostNormed(nn.Module):
    """The query is added to the output, and the sum is normalised."""

    added = 1

    def __init__(self, n_head, d_model, d_k, d_v, dropout=0.1):
        super().__init__()
        self.n_head = n_head
        self.w_qs, self.w_ks = (nn.Linear(d_model, n_head * d_k, bias=False) for _ in range(2))
        self.w_vs = nn.Linear(d_model, n_head * d_v, bias=False)
        self.fc = nn.Linear(n_head * d_v, d_model, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.layer_norm = nn.LayerNorm(d_model)

    def forward(self, q, k, v):
        """Return (N, L, E)."""
        rows = (split(f(x), self.n_head) for f, x in ((self.w_qs, q), (self.w_ks, k), (self.w_vs, v)))
        return self.layer_norm(self.dropout(self.fc(merge(attend(*rows)))) + self.added * q)


class AddsTwice(PostNormed):
    """Adds the query twice."""

    added = 2


class Float32Inside(nn.Module):
    """Computes in float32 whatever it gets, without dropout."""

    added = 1

    def __init__(self, n_head, d_model):
        super().__init__()
        self.n_head = n_head
        self.w_qs, self.w_ks, self.w_vs, self.fc = (
            nn.Linear(d_model, d_model, bias=False) for _ in range(4)
        )
        self.layer_norm = nn.LayerNorm(d_model)

    def plus(self, x):
        """Return what is added to the output."""
        return self.added * x

    def forward(self, x):
        """Return (N, L, E)."""
        self.float()
        x = x.float()
        rows = (split(f(x), self.n_head) for f in (self.w_qs, self.w_ks, self.w_vs))
        return self.layer_norm(self.fc(merge(attend(*rows))) + self.plus(x))


class Float32Twice(Float32Inside):
    """Adds its input twice."""

    added = 2


class Float32SlightlyMore(Float32Inside):
    """Adds a little more than its input, near enough for the small problem that is tried first."""

    added = 1.0001


class Float32TwiceWhereLong(Float32Inside):
    """Adds the input twice where it is longer than that of the small problem tried first."""

    def plus(self, x):
        """Return what is added to the output."""
        return 2 * x if x.shape[1] > 5 else x
