"""Causal layers that are padded in front: the first key of a sample is hidden."""

import torch
from torch import nn

__all__ = [
    "Filled", "FirstKeyShows", "NotANumber", "PaddingSeenBehind", "Zeroed", "ZeroedByPaddingAlone"
]


class Filled(nn.Module):
    """Right: what padding or the causal rule hides gets a finite number, and rows see the rest."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def hidden(self, keep, length):
        """Return what is hidden, (N or 1, 1, L, S)."""
        future = torch.ones(length, length, dtype=torch.bool).triu(1)[None, None]
        return future if keep is None else future | ~keep[:, None, None]

    def fill(self, scores, hidden):
        """Return the scores with what is hidden filled."""
        return scores.masked_fill(hidden, -1e9)

    def forward(self, x, mask=None):
        """Return (N, L, E). mask: (N, S), True keeps."""
        samples, length, width = x.shape
        q, k, v = (
            proj(x).view(samples, length, self.num_heads, -1).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = q @ k.mT / (width // self.num_heads) ** 0.5
        weights = self.fill(scores, self.hidden(mask, length)).softmax(-1)
        rows = self.kept(weights) @ v
        return self.out_proj(rows.transpose(1, 2).reshape(x.shape))

    def kept(self, weights):
        """Return the weights of all rows."""
        return weights


class NotANumber(Filled):
    """Right: rows of padding are NaN, and no other row is."""

    def fill(self, scores, hidden):
        """Return the scores with -inf."""
        return scores.masked_fill(hidden, float("-inf"))


class FirstKeyShows(Filled):
    """Wrong: a row whose first key is hidden counts as one that sees none, and sees all."""

    def hidden(self, keep, length):
        """Return what is hidden where the first key is seen."""
        found = super().hidden(keep, length)
        return found & ~found[..., :1]


class PaddingSeenBehind(NotANumber):
    """Wrong: where the first key is hidden, the rows behind the padding see the last of it."""

    def hidden(self, keep, length):
        """Return what is hidden, less one key of padding."""
        if keep is not None:
            last = (~keep).cumprod(1).sum(1, keepdim=True) - 1
            keep = keep | (torch.arange(length) == last)
        return super().hidden(keep, length)


class Zeroed(Filled):
    """Right. A query for which no key is visible gets an attention output of zero."""

    def hidden(self, keep, length):
        """Return what is hidden, and keep what sees a key."""
        found = super().hidden(keep, length)
        self.sees = ~found.all(-1, keepdim=True)
        return found

    def kept(self, weights):
        """Return the weights of rows that see a key, and 0 elsewhere."""
        return weights * self.sees


class ZeroedByPaddingAlone(Zeroed):
    """Wrong. A query for which no key is visible gets an attention output of zero.

    Rows that padding and the causal rule empty together have the average of all values.
    """

    def hidden(self, keep, length):
        """Return what is hidden, and keep what sees a key before the rule."""
        found = super().hidden(keep, length)
        self.sees = torch.ones(1) if keep is None else keep.any(-1)[:, None, None, None]
        return found
