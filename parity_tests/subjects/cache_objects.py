"""Layers whose key/value cache is an object, or is made by their own code; wrong ones beside."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn


class Grows:
    """Keeps the keys and values of all rows, (N, H, S, D)."""

    def __init__(self) -> None:
        self.pair: tuple[Tensor, Tensor] | None = None

    def add(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of all rows, with these behind the others."""
        if self.pair is not None:
            k, v = (torch.cat(two, dim=2) for two in zip(self.pair, (k, v), strict=True))
        self.pair = k, v
        return k, v


class InFront(Grows):
    """Puts the new keys in front of the others, and the values behind."""

    def add(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of all rows."""
        if self.pair is not None:
            k = torch.cat((k, self.pair[0]), dim=2)
            v = torch.cat((self.pair[1], v), dim=2)
        self.pair = k, v
        return k, v


class HasRoom:
    """Has room for a number of rows, and counts those that it holds."""

    step = 0

    def __init__(
        self,
        max_batch: int,
        n_heads: int,
        max_len: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        shape = max_batch, n_heads, max_len, head_dim
        self.k, self.v = torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)
        self.rows = 0

    def add(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of all rows."""
        end = self.rows + k.shape[2]
        self.k[:, :, self.rows : end], self.v[:, :, self.rows : end] = k, v
        self.rows += self.step or k.shape[2]
        return self.k[:, :, :end], self.v[:, :, :end]


class CountsCalls(HasRoom):
    """Counts calls where it should count rows."""

    step = 1


class Causal(nn.Module):
    """Causal self-attention, with what the subjects have in common."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads, self.head_dim = n_heads, d_model // n_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )

    def attend(self, x: Tensor, cache: Any) -> Tensor:
        """Return attention of the rows and of those that a cache keeps."""
        q, k, v = (
            each(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for each in (self.q_proj, self.k_proj, self.v_proj)
        )
        if cache is not None:
            k, v = cache.add(k, v)
        rows, keys = q.shape[2], k.shape[2]
        seen = torch.ones(rows, keys).tril(keys - rows) > 0
        scores = (q @ k.transpose(-2, -1) * self.head_dim**-0.5).masked_fill(~seen, -torch.inf)
        joined: Tensor = self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return joined


class Annotated(Causal):
    """Takes an object of an annotated class, or none."""

    def forward(self, x: Tensor, kv_cache: Grows | None = None) -> Tensor:
        """Return the output."""
        return self.attend(x, kv_cache)


class AnnotatedInFront(Causal):
    """Wrong: takes one that puts new keys in front."""

    def forward(self, x: Tensor, kv_cache: InFront | None = None) -> Tensor:
        """Return the output."""
        return self.attend(x, kv_cache)


class Requires(Causal):
    """Takes an object in each call, whose rows it counts."""

    def forward(self, x: Tensor, cache: Grows) -> Tensor:
        """Return the output."""
        self.rows_before = 0 if cache.pair is None else cache.pair[0].shape[2]
        return self.attend(x, cache)


class RequiresInFront(Requires):
    """Wrong: the same with one that puts new keys in front."""

    def forward(self, x: Tensor, cache: InFront) -> Tensor:
        """Return the output."""
        return super().forward(x, cache)


class WithRoom(Causal):
    """Takes an object that is built for sizes."""

    def forward(self, x: Tensor, cache: HasRoom | None = None) -> Tensor:
        """Return the output."""
        return self.attend(x, cache)


class WithRoomForCalls(Causal):
    """Wrong: takes one that counts calls."""

    def forward(self, x: Tensor, cache: CountsCalls | None = None) -> Tensor:
        """Return the output."""
        return self.attend(x, cache)


class Makes(Causal):
    """Has a method that makes a dictionary, which calls fill."""

    forgets = False

    def init_cache(self, batch_size: int, max_len: int) -> dict[str, Any]:
        """Return room for a number of rows."""
        shape = batch_size, self.n_heads, max_len, self.head_dim
        k, v = (torch.zeros(shape, dtype=self.q_proj.weight.dtype) for _ in range(2))
        return {"k": k, "v": v, "rows": 0}

    def forward(self, x: Tensor, cache: dict[str, Any] | None = None) -> Tensor:
        """Return the output."""
        if cache is None:
            return self.attend(x, None)
        room = HasRoom.__new__(HasRoom)
        room.k, room.v, room.rows = cache["k"], cache["v"], cache["rows"]
        output = self.attend(x, room)
        cache["rows"] = x.shape[1] if self.forgets else room.rows
        return output


class MakesAndForgets(Makes):
    """Goes on behind the rows of the last call alone."""

    forgets = True


class Pair(NamedTuple):
    """Keys and values (N, H, S, D), and the number of rows that are of use."""

    k: np.ndarray
    v: np.ndarray
    rows: int

    @classmethod
    def create(cls, batch_size: int, num_heads: int, max_len: int, head_dim: int) -> Pair:
        """Return room for a number of rows."""
        k, v = np.zeros((2, batch_size, num_heads, max_len, head_dim))
        return cls(k, v, 0)


def returns_another(
    x: np.ndarray,
    w_q: np.ndarray,
    w_k: np.ndarray,
    w_v: np.ndarray,
    num_heads: int,
    cache: Pair | None = None,
    further: int = 0,
) -> tuple[np.ndarray, Pair | None]:
    """Return causal attention of rows (N, L, E), and a new cache, which has theirs too."""
    q, k, v = (
        (x @ w).reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2) for w in (w_q, w_k, w_v)
    )
    rows, before = x.shape[1], 0
    if cache is not None:
        before, both = cache.rows, []
        for room, new in ((cache.k, k), (cache.v, v)):
            filled = room.astype(x.dtype)
            filled[:, :, before : before + rows] = new
            both.append(filled)
        cache = Pair(*both, before + rows)
        k, v = both
    hidden = np.arange(k.shape[2]) > before + (cache is not None) * further + np.arange(rows)[:, None]
    scores = np.where(hidden, -np.inf, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    e = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = e / e.sum(-1, keepdims=True) @ v
    return mixed.swapaxes(1, 2).reshape(x.shape), cache


def sees_empty_room(
    x: np.ndarray,
    w_q: np.ndarray,
    w_k: np.ndarray,
    w_v: np.ndarray,
    num_heads: int,
    cache: Pair | None = None,
) -> tuple[np.ndarray, Pair | None]:
    """Return the same, with a row too many of the cache."""
    return returns_another(x, w_q, w_k, w_v, num_heads, cache, further=1)


class CacheOfLists:
    """Keeps lists of keys and values."""

    def __init__(self) -> None:
        self.k: list[Tensor] = []
        self.v: list[Tensor] = []

    def add(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of all rows."""
        self.k.append(k)
        self.v.append(v)
        return torch.cat(self.k, dim=2), torch.cat(self.v, dim=2)


class ByName(Causal):
    """Says nothing of the cache's class, which is called one in its module."""

    def forward(self, x: Tensor, cache=None) -> Tensor:  # type: ignore[no-untyped-def]
        """Return the output."""
        return self.attend(x, cache)


class WithPair(Causal):
    """Takes and returns a pair of arrays; without one it returns none."""

    returns_the_old = False

    def forward(self, x: Tensor, kv_cache: Any = None) -> tuple[Tensor, Any]:
        """Return the output and the pair for the next call."""
        held = Grows()
        held.pair = kv_cache
        output = self.attend(x, held)
        passed = kv_cache if self.returns_the_old or kv_cache is None else held.pair
        return output, passed


class ReturnsTheOld(WithPair):
    """Returns the pair that it was passed: no call sees the rows of another."""

    returns_the_old = True


class ReadsNoPair(Causal):
    """Takes a pair for the sake of its callers, and returns it as it is."""

    def forward(self, x: Tensor, kv_cache: Any = None) -> tuple[Tensor, Any]:
        """Return the output and what was passed."""
        return self.attend(x, None), kv_cache
