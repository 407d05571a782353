"""Layers with a LayerNorm around their attention, as torch's may have, or between its projections.

The norm stands where a subject's docstring says. Two return their output by name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from styles import attend, merge, split


class Normed(nn.Module):
    """Four Linears and a norm."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )
        self.norm = nn.LayerNorm(embed_dim)

    def mixed(self, q, k, v):
        """Return the heads of projected rows, mixed and merged."""
        return merge(attend(*(split(rows, self.num_heads) for rows in (q, k, v))))

    def attention(self, q, k, v):
        """Return what torch's layer returns."""
        return self.out_proj(self.mixed(self.q_proj(q), self.k_proj(k), self.v_proj(v)))


class Before(Normed):
    """Right: all projections get normalised rows."""

    def forward(self, x):
        """Return (N, L, E)."""
        x = self.norm(x)
        return self.attention(x, x, x)


class Behind(Normed):
    """Right: the output is normalised, and then added to the input."""

    def forward(self, x):
        """Return (N, L, E)."""
        return x + self.norm(self.attention(x, x, x))


class BeforeBoth(Normed):
    """The normalised input is added to the output: its attention is right, its sum is rare."""

    def forward(self, x):
        """Return (N, L, E)."""
        x = self.norm(x)
        return x + self.attention(x, x, x)


class BehindSum(Normed):
    """Right: the sum of input and output is normalised."""

    def forward(self, x):
        """Return (N, L, E)."""
        return self.norm(x + self.attention(x, x, x))


class OfKeys(Normed):
    """Right: as torch's layer with normalised rows as keys, and with x as queries and values."""

    def forward(self, x):
        """Return (N, L, E)."""
        return self.attention(x, self.norm(x), x)


class OfTheOutput(Normed):
    """Without counterpart: the output is normalised, and returned."""

    def forward(self, x):
        """Return (N, L, E)."""
        return self.norm(self.attention(x, x, x))


class OfTheOutputUnscaled(OfTheOutput):
    """Wrong: the same, and the scale is left out."""

    def mixed(self, q, k, v):
        """Return the heads of projected rows, mixed and merged."""
        return super().mixed(q * (q.shape[-1] // self.num_heads) ** 0.5, k, v)


class OfProjectedQueries(Normed):
    """Without counterpart: queries are normalised behind their projection."""

    def forward(self, x):
        """Return (N, L, E)."""
        q = self.norm(self.q_proj(x))
        return self.out_proj(self.mixed(q, self.k_proj(x), self.v_proj(x)))


class OfMergedHeads(Normed):
    """Without counterpart: merged heads are normalised before the output projection."""

    def forward(self, x):
        """Return (N, L, E)."""
        mixed = self.mixed(self.q_proj(x), self.k_proj(x), self.v_proj(x))
        return self.out_proj(self.norm(mixed))


class OfEveryHead(Normed):
    """Without counterpart: the queries of each head are normalised."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.norm = nn.LayerNorm(embed_dim // num_heads)

    def forward(self, x):
        """Return (N, L, E)."""
        q = merge(self.norm(split(self.q_proj(x), self.num_heads)))
        return self.out_proj(self.mixed(q, self.k_proj(x), self.v_proj(x)))


@dataclass
class Attended:
    """An output with names; the weights stand first."""

    attentions: torch.Tensor | None
    last_hidden_state: torch.Tensor


class Named(Normed):
    """Right: returns a dataclass."""

    def forward(self, x):
        """Return the output by name."""
        return Attended(None, self.attention(x, x, x))


class NamedOfKeys(Normed):
    """Wrong: mixes the keys, and returns a dataclass."""

    def forward(self, x):
        """Return the output by name."""
        return Attended(None, self.attention(x, x, self.k_proj(x)))


def named_scores(query, key, value):
    """Right: returns weights and output by name."""
    weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)
    return Attended(weights, weights @ value)


class OwnNorm:
    """A LayerNorm of arrays."""

    def __init__(self, dim):
        self.gamma, self.beta = np.ones(dim), np.zeros(dim)

    def __call__(self, x):
        """Return rows of mean 0 and variance 1, scaled and shifted."""
        centred = x - x.mean(-1, keepdims=True)
        return self.gamma * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) + self.beta


class OfArrays:
    """Right: a single sequence (L, E) of arrays is normalised, and added to the output."""

    factor = 1.0

    def __init__(self, d_model, num_heads):
        self.heads, self.norm = num_heads, OwnNorm(d_model)
        rng = np.random.default_rng(0)
        self.W_q, self.W_k, self.W_v, self.W_o = (rng.random((d_model, d_model)) for _ in range(4))

    def forward(self, x):
        """Return (L, E)."""
        if x.ndim != 2:
            raise ValueError("a single sequence is wanted")
        rows = self.norm(x)
        q, k, v = (
            (rows @ w).reshape(len(x), self.heads, -1).swapaxes(0, 1)
            for w in (self.W_q, self.W_k, self.W_v)
        )
        scores = self.factor * q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        odds = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (odds / odds.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(x.shape)
        return x + mixed @ self.W_o


class OfArraysTwice(OfArrays):
    """Wrong: takes the scores twice."""

    factor = 2.0
