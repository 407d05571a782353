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
