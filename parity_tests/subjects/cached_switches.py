"""Layers whose constructor switches the causal rule on, and whose calls take a cache."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Switched(nn.Module):
    """Right: of keys of earlier calls each row sees all, and of its own call those up to it."""

    def __init__(self, embed_dim: int, num_heads: int, is_causal: bool) -> None:
        super().__init__()
        self.num_heads, self.is_causal = num_heads, is_causal
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def first_hidden(self, rows: int, keys: int) -> int:
        """Return the first diagonal that is hidden."""
        return keys - rows + 1

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        kv_cache: dict[str, Tensor] | None = None,
    ) -> Tensor:
        """Return (N, L, E); mask (N, S) is True for padding, and kv_cache is filled."""
        q, k, v = (
            each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, dim=-1)
        )
        if kv_cache is not None:
            if "k" in kv_cache:
                k = torch.cat([kv_cache["k"], k], dim=2)
                v = torch.cat([kv_cache["v"], v], dim=2)
            kv_cache["k"], kv_cache["v"] = k, v
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None], -torch.inf)
        if self.is_causal:
            whole = torch.ones(scores.shape[-2:], dtype=torch.bool)
            later = whole.triu(self.first_hidden(*scores.shape[-2:]))
            scores = scores.masked_fill(later, -torch.inf)
        joined: Tensor = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return joined


class SwitchedTopLeft(Switched):
    """Wrong with a cache and the rule: row t of a call sees the first t keys of the cache."""

    def first_hidden(self, rows: int, keys: int) -> int:  # noqa: ARG002  (as public code has it)
        """Return the first diagonal that is hidden."""
        return 1
