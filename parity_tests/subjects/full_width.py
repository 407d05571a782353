"""Layers whose heads are each as wide as the input: the output projection takes H E numbers."""

from __future__ import annotations

import torch
from torch import nn

from styles import attend


class Head(nn.Module):
    """One head of the whole width."""

    def __init__(self, dim):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))

    def forward(self, x):
        """Return (N, L, E)."""
        return attend(self.query(x), self.key(x), self.value(x))


class ListOfWideHeads(nn.Module):
    """Heads in a list, and one Linear of all that they give."""

    kind = Head

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = nn.ModuleList(self.kind(dim) for _ in range(heads))
        self.out = nn.Linear(dim * heads, dim)

    def forward(self, x):
        """Return (N, L, E)."""
        return self.out(torch.cat([head(x) for head in self.heads], dim=-1))


class HeadScaledAsNarrow(Head):
    """Divides by the root of a quarter of its width."""

    def forward(self, x):
        """Return (N, L, E)."""
        return attend(2 * self.query(x), self.key(x), self.value(x))


class WideHeadsScaledAsNarrow(ListOfWideHeads):
    """Right but for the scale."""

    kind = HeadScaledAsNarrow


class OneLinearOfWideHeads(nn.Module):
    """Three Linears from E to H E, split as they lie; no output projection where ``joined``."""

    joined = True

    def __init__(self, emb, heads=8):
        super().__init__()
        self.h = heads
        self.tokeys = nn.Linear(emb, emb * heads, bias=False)
        self.toqueries = nn.Linear(emb, emb * heads, bias=False)
        self.tovalues = nn.Linear(emb, emb * heads, bias=False)
        if self.joined:
            self.unify = nn.Linear(heads * emb, emb)

    def split(self, rows):
        """Return (N, H, L, E)."""
        return rows.reshape(*rows.shape[:2], self.h, -1).transpose(1, 2)

    def forward(self, x):
        """Return (N, L, E), or (N, L, H E)."""
        q, k, v = (self.split(f(x)) for f in (self.toqueries, self.tokeys, self.tovalues))
        rows = attend(q, k, v).transpose(1, 2).flatten(2)
        return self.unify(rows) if self.joined else rows


class WideHeadsSideBySide(OneLinearOfWideHeads):
    """Returns what its heads give next to each other, (N, L, H E)."""

    joined = False


class WideHeadsInterleaved(OneLinearOfWideHeads):
    """Merges heads without moving their axis back."""

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (self.split(f(x)) for f in (self.toqueries, self.tokeys, self.tovalues))
        return self.unify(attend(q, k, v).reshape(*x.shape[:2], -1))


class WideHeadsReversed(OneLinearOfWideHeads):
    """Merges heads from the last to the first."""

    def split(self, rows):
        """Return (N, H, L, E)."""
        return super().split(rows).flip(1)


class WideHeadsReversedSideBySide(WideHeadsReversed):
    """Returns them in that order, (N, L, H E)."""

    joined = False


class TwoWidths(nn.Module):
    """Built with the width of its inputs and that of each head, by names that do not say so."""

    def __init__(self, input_dim, hidden_dim, num_head):
        super().__init__()
        self.num_head, self.hidden_dim, self.scaled_by = num_head, hidden_dim, hidden_dim
        self.w_q, self.w_k, self.w_v = (
            nn.Linear(input_dim, hidden_dim * num_head, bias=False) for _ in range(3)
        )
        self.fc = nn.Linear(hidden_dim * num_head, input_dim, bias=False)

    def forward(self, q, k, v):
        """Return (N, L, E)."""
        q, k, v = (
            torch.unflatten(w(x), -1, (self.num_head, self.hidden_dim)).transpose(1, 2)
            for w, x in ((self.w_q, q), (self.w_k, k), (self.w_v, v))
        )
        weights = (q @ k.transpose(-2, -1) / self.scaled_by**0.5).softmax(-1)
        return self.fc((weights @ v).transpose(1, 2).flatten(-2))


class TwoWidthsScaledByTheFirst(TwoWidths):
    """Divides by the root of the input's width, which is right where both widths are equal."""

    def __init__(self, input_dim, hidden_dim, num_head):
        super().__init__(input_dim, hidden_dim, num_head)
        self.scaled_by = input_dim
