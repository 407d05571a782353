"""Layers with torch's switch of a further key and value of zeros."""

import torch
from torch import nn
from torch.nn.functional import pad


class AppendsZeros(nn.Module):
    """Right: each query sees the key of zeros, whatever masks hide."""

    hides_zeros = False

    def __init__(self, embed_dim, num_heads, add_zero_attn=False):
        super().__init__()
        self.num_heads, self.add_zero_attn = num_heads, add_zero_attn
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, query, key, value, key_padding_mask=None):
        """Return (N, L, E); key_padding_mask (N, S) hides."""
        linears = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (
            linear(rows).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear, rows in zip(linears, (query, key, value), strict=True)
        )
        hidden = key_padding_mask
        if self.add_zero_attn:
            k, v = pad(k, (0, 0, 0, 1)), pad(v, (0, 0, 0, 1))
            hidden = None if hidden is None else pad(hidden, (0, 1), value=self.hides_zeros)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden[:, None, None], -torch.inf)
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class HidesZeros(AppendsZeros):
    """Wrong: with padding the key of zeros is hidden too."""

    hides_zeros = True


class AppendsNothing(AppendsZeros):
    """Wrong: its switch does nothing."""

    def __init__(self, embed_dim, num_heads, add_zero_attn=False):
        super().__init__(embed_dim, num_heads)


class NamedAsRows(AppendsZeros):
    """Right.

    hidden: boolean (N, S); True marks keys that may not be read.
    """

    def forward(self, query, key, value, hidden: torch.Tensor | None = None):
        """Return (N, L, E)."""
        return super().forward(query, key, value, hidden)


class NamedAsRowsHidesZeros(NamedAsRows):
    """Wrong: with padding the key of zeros is hidden too.

    hidden: boolean (N, S); True marks keys that may not be read.
    """

    hides_zeros = True
