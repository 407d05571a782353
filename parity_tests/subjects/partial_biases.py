"""Layers that have biases of some projections alone."""

from __future__ import annotations

from torch import nn

from styles import attend, merge, split


class NoneOfKeys(nn.Module):
    """Right: of keys a bias would change nothing."""

    biases = (True, False, True, True)

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim, bias=bias) for bias in self.biases
        )

    def values(self, x):
        """Return the projected values."""
        return self.v_proj(x)

    def forward(self, x):
        """Return (N, L, E)."""
        rows = self.q_proj(x), self.k_proj(x), self.values(x)
        q, k, v = (split(each, self.num_heads) for each in rows)
        return self.projected(merge(attend(q, k, v, None)))

    def projected(self, heads):
        """Return the output."""
        return self.out_proj(heads)


class NoneOfOutput(NoneOfKeys):
    """Right: q, k and v have biases, and the output has none."""

    biases = (True, True, True, False)


class NoneOfOutputForgotten(NoneOfOutput):
    """Wrong: the bias of the values is left out."""

    def values(self, x):
        """Return the projected values."""
        return x @ self.v_proj.weight.T


class OfOutputAlone(NoneOfKeys):
    """Right: the output alone has a bias."""

    biases = (False, False, False, True)


class OfOutputAloneTwice(OfOutputAlone):
    """Wrong: it is added twice."""

    def projected(self, heads):
        """Return the output."""
        return super().projected(heads) + self.out_proj.bias
