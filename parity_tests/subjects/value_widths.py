"""Layers whose value heads may have a width of their own."""

import torch
from torch import nn

__all__ = ["OfOneWidth", "OfTheOutputAlone", "Own", "Packed", "ScaledByValues", "SharedWidth"]


class Own(nn.Module):
    """Right: values and output have the width of value heads, and nothing else has."""

    def __init__(self, embed_dim, num_heads, d_k=16, d_v=16):
        super().__init__()
        self.num_heads, self.d_k, self.d_v = num_heads, d_k, d_v
        self.w_q = nn.Linear(embed_dim, num_heads * d_k)
        self.w_k = nn.Linear(embed_dim, num_heads * d_k)
        self.w_v = nn.Linear(embed_dim, num_heads * d_v)
        self.w_o = nn.Linear(num_heads * d_v, embed_dim)

    def scale(self):
        """Return what the scores are divided by."""
        return self.d_k**0.5

    def heads(self, rows, width):
        """Return (N, H, L, D)."""
        return rows.view(*rows.shape[:2], self.num_heads, width).transpose(1, 2)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k = (self.heads(proj(x), self.d_k) for proj in (self.w_q, self.w_k))
        v = self.heads(self.w_v(x), self.d_v)
        rows = (q @ k.mT / self.scale()).softmax(-1) @ v
        return self.w_o(rows.transpose(1, 2).flatten(2))


class ScaledByValues(Own):
    """Wrong: the scores are divided by the root of the values' width."""

    def scale(self):
        """Return the root of the wrong width."""
        return self.d_v**0.5


class OfOneWidth(Own):
    """Right of equal widths: others raise."""

    def heads(self, rows, width):
        """Return (N, H, L, D), D that of queries."""
        return super().heads(rows, self.d_k)


class SharedWidth(Own):
    """Right: the two widths are one, by its constructor."""

    def __init__(self, embed_dim, num_heads, d_k=16, d_v=16):
        if d_k != d_v:
            raise ValueError("d_k and d_v have to be equal")
        super().__init__(embed_dim, num_heads, d_k, d_v)


class Packed(nn.Module):
    """Right: q, k and v are one matrix, and the width of value heads is read nowhere."""

    def __init__(self, embed_dim, num_heads, d_k=16, d_v=16):
        super().__init__()
        del d_v
        self.num_heads, self.d_k = num_heads, d_k
        self.qkv = nn.Linear(embed_dim, 3 * num_heads * d_k)
        self.out = nn.Linear(num_heads * d_k, embed_dim)

    def forward(self, x):
        """Return (N, L, E)."""
        rows = self.qkv(x).view(*x.shape[:2], 3, self.num_heads, self.d_k)
        q, k, v = rows.permute(2, 0, 3, 1, 4)
        rows = torch.softmax(q @ k.mT / self.d_k**0.5, -1) @ v
        return self.out(rows.transpose(1, 2).flatten(2))


class OfTheOutputAlone(Own):
    """Right of equal widths: the output's matrix has that of values, and the values have not."""

    def __init__(self, embed_dim, num_heads, d_k=16, d_v=16):
        super().__init__(embed_dim, num_heads, d_k, d_v)
        self.w_v = nn.Linear(embed_dim, num_heads * d_k)
