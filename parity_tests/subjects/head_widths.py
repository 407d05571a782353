"""Layers whose heads may have another width than their rows divided by the number of heads."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

__all__ = [
    "Configured", "ConfiguredByRows", "InTotal", "InTotalScaledByRows", "OfRows", "Optional", "OptionalScaledByValues", "Packed",
    "ScaledByRows", "Uncut", "WithoutOutput",
]  # fmt: skip


def _by_head(rows, heads):
    return rows.unflatten(-1, (heads, -1)).transpose(-2, -3)


class Packed(nn.Module):
    """Right: q, k and v are one matrix for heads of a width of their own."""

    def __init__(self, dim, heads=8, dim_head=64):
        super().__init__()
        self.heads, self.dim, self.dim_head = heads, dim, dim_head
        self.to_qkv = nn.Linear(dim, 3 * heads * dim_head, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim)

    def scale(self):
        """Return what the scores are multiplied by."""
        return self.dim_head**-0.5

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (_by_head(each, self.heads) for each in self.to_qkv(x).chunk(3, dim=-1))
        rows = (q @ k.mT * self.scale()).softmax(-1) @ v
        return self.to_out(rows.transpose(1, 2).flatten(2))


class ScaledByRows(Packed):
    """Wrong: the scale is that of heads of the width of rows divided by their number."""

    def scale(self):
        """Return the scale of other heads."""
        return (self.dim // self.heads) ** -0.5


class Uncut(Packed):
    """Right of equal widths: of others the heads are not put together as they were made."""

    def forward(self, x):
        """Return (N, L, E), where heads have E / H channels."""
        q, k, v = (_by_head(each, self.heads) for each in self.to_qkv(x).chunk(3, dim=-1))
        rows = (q @ k.mT * self.scale()).softmax(-1) @ v
        return self.to_out(rows.transpose(1, 2).reshape(x.shape))


class OfRows(Packed):
    """Right: it refuses heads of another width."""

    def __init__(self, dim, heads=8, dim_head=64):
        if dim != heads * dim_head:
            raise ValueError("dim has to be heads times dim_head")
        super().__init__(dim, heads, dim_head)


class Optional(nn.Module):
    """Right: queries, and values, have widths of their own where these are given."""

    def __init__(self, num_heads, query_size, qk_size=None, vo_size=None):
        super().__init__()
        width = query_size // num_heads
        self.num_heads, self.qk_size, self.vo_size = num_heads, qk_size or width, vo_size or width
        self.wq = nn.Linear(query_size, num_heads * self.qk_size)
        self.wk = nn.Linear(query_size, num_heads * self.qk_size)
        self.wv = nn.Linear(query_size, num_heads * self.vo_size)
        self.wo = nn.Linear(num_heads * self.vo_size, query_size)

    def scale(self):
        """Return what the scores are divided by."""
        return self.qk_size**0.5

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (_by_head(proj(x), self.num_heads) for proj in (self.wq, self.wk, self.wv))
        rows = (q @ k.mT / self.scale()).softmax(-1) @ v
        return self.wo(rows.transpose(1, 2).flatten(2))


class OptionalScaledByValues(Optional):
    """Wrong: the scores are divided by the root of the width of values."""

    def scale(self):
        """Return the root of the wrong width."""
        return self.vo_size**0.5


class WithoutOutput(nn.Module):
    """Right: its output is as wide as its one head, which no projection follows."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.w_query, self.w_key, self.w_value = (nn.Linear(d_in, d_out) for _ in range(3))

    def forward(self, x):
        """Return (N, L, d_out)."""
        keys = self.w_key(x)
        scores = self.w_query(x) @ keys.mT / keys.shape[-1] ** 0.5
        return scores.softmax(-1) @ self.w_value(x)


class InTotal(Packed):
    """Right: `attn_dim` is the width of all heads together."""

    def __init__(self, embed_dim, num_heads, attn_dim):
        super().__init__(embed_dim, num_heads, attn_dim // num_heads)


class InTotalScaledByRows(InTotal):
    """Wrong: the scale is that of heads of the width of rows divided by their number."""

    def scale(self):
        """Return the scale of other heads."""
        return torch.tensor(self.dim / self.heads, dtype=torch.float64).rsqrt().item()


@dataclass
class Settings:
    """Sizes; ``head_dim`` is that of rows divided by heads where it is None."""

    hidden_size: int = 64
    num_attention_heads: int = 4
    head_dim: int | None = None

    def __post_init__(self):
        if self.head_dim is None:
            self.head_dim = self.hidden_size // self.num_attention_heads


class Configured(Packed):
    """Right: the width of heads is one of its configuration."""

    def __init__(self, config: Settings):
        super().__init__(config.hidden_size, config.num_attention_heads, config.head_dim)


class ConfiguredByRows(nn.Module):
    """Wrong: the same of a configuration without a class, with the scale of other heads."""

    def __init__(self, config: Any):
        super().__init__()
        self.config, self.heads = config, config.num_attention_heads
        width = self.heads * config.head_dim
        self.to_qkv = nn.Linear(config.hidden_size, 3 * width, bias=False)
        self.to_out = nn.Linear(width, config.hidden_size)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (_by_head(each, self.heads) for each in self.to_qkv(x).chunk(3, dim=-1))
        scale = (x.shape[-1] // self.heads) ** -0.5
        rows = (q @ k.mT * scale).softmax(-1) @ v
        return self.to_out(rows.transpose(1, 2).flatten(2))
