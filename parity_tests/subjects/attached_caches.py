"""Layers to which callers attach a key/value cache; wrong ones beside."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class KVCache(nn.Module):
    """Has room for a number of rows, and counts those that it holds."""

    def __init__(
        self,
        max_batch_size: int,
        n_heads: int,
        max_seq_length: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        shape = max_batch_size, n_heads, max_seq_length, head_dim
        self.register_buffer("k_cache", torch.zeros(shape, dtype=dtype))
        self.register_buffer("v_cache", torch.zeros(shape, dtype=dtype))
        self.rows = 0

    def update(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of all rows, with these behind the others."""
        end = self.rows + k.shape[2]
        self.k_cache[:, :, self.rows : end], self.v_cache[:, :, self.rows : end] = k, v
        self.rows = end
        return self.k_cache[:, :, :end], self.v_cache[:, :, :end]


class Attached(nn.Module):
    """Causal self-attention whose callers set its attribute to a cache."""

    def __init__(self, dim: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim) for _ in range(4))
        self.kv_cache: KVCache | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Attend from the rows of ``x``, (N, L, E), to these and to those of the cache."""
        split = (w(x).unflatten(-1, (self.n_heads, -1)) for w in (self.wq, self.wk, self.wv))
        q, k, v = (each.transpose(1, 2) for each in split)
        if self.kv_cache is not None:
            k, v = self.kv_cache.update(k, v)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        rows = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device)
        weights = scores.masked_fill(rows.triu(1 + self._before(scores)), -torch.inf).softmax(-1)
        return self.wo((weights @ v).transpose(1, 2).flatten(2))

    def _before(self, scores: Tensor) -> int:
        return scores.shape[-1] - scores.shape[-2]


class OverwritesTheLast(Attached):
    """Writes the rows of a call from the last one of the call before on."""

    def forward(self, x: Tensor) -> Tensor:
        """Attend as the others do."""
        answer: Tensor = super().forward(x)
        if self.kv_cache is not None:
            self.kv_cache.rows -= 1
        return answer


class CountsFromFirst(Attached):
    """Lets the rows of one call see as many keys as where none stand before them."""

    def _before(self, scores: Tensor) -> int:
        return 0 if scores.shape[-2] > 1 else scores.shape[-1] - 1


class SetsUp(Attached):
    """Has a method that makes the cache."""

    def setup_cache(self, batch_size: int, max_seq_length: int, dtype: torch.dtype) -> None:
        """Set the attribute to an empty cache."""
        width = self.wq.out_features // self.n_heads
        self.kv_cache = KVCache(batch_size, self.n_heads, max_seq_length, width, dtype)


class OfStrangers(Attached):
    """Takes a cache with a method that no class of the module has."""

    def forward(self, x: Tensor) -> Tensor:
        """Attend as the others do, to what another class keeps."""
        cache, self.kv_cache = self.kv_cache, None
        if cache is not None:
            x = cache.rows_behind_those_before(x)
        return super().forward(x)


class OfItsConstructor(Attached):
    """May get a cache where it is built."""

    def __init__(self, dim: int, n_heads: int, kv_cache: KVCache | None = None) -> None:
        super().__init__(dim, n_heads)
        self.kv_cache = kv_cache
