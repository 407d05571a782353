"""Layers with a key/value cache, right and wrong ones, and how each is passed its cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mha_parity.targets.calls.cache_arguments import CacheUse

if TYPE_CHECKING:
    from collections.abc import Sequence


class Layer(nn.Module):
    """Causal self-attention, with what the subjects have in common."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k and v, (N, H, L, D)."""
        q, k, v = (
            p(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        return q, k, v

    def attend(self, q: Tensor, kv: Sequence[Tensor], behind: int | None = None) -> Tensor:
        """Return attention of the last rows, or of those behind as many others."""
        k, v = kv
        rows, keys = q.shape[-2], k.shape[-2]
        seen = torch.ones(rows, keys).tril(keys - rows if behind is None else behind) > 0
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        joined: Tensor = self.out_proj((weights @ v).transpose(1, 2).flatten(2))
        return joined


def joined(past: Any, *new: Tensor) -> tuple[Tensor, ...]:
    """Return the arrays of a cache with the new ones behind them."""
    if past is None:
        return new
    return tuple(torch.cat(pair, dim=2) for pair in zip(past, new, strict=True))


class OneHead(nn.Module):
    """Attention of one head over rows (..., L, E), with a cache that is joined along axis 1.

    That is the rows' axis of (N, L, E), and the width's of (L, E).
    """

    def __init__(self, model_dim: int) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(model_dim, model_dim, bias=False) for _ in range(3)
        )

    def forward(self, x: Tensor, kv_cache: Any = None) -> Any:
        """Return the output and the keys and values of all rows."""
        k, v = self.k_proj(x), self.v_proj(x)
        if kv_cache is not None:
            k, v = (torch.cat(pair, dim=1) for pair in zip(kv_cache, (k, v), strict=True))
        scores = self.q_proj(x) @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        return scores.softmax(-1) @ v, (k, v)


class Pair(Layer):
    """Takes and returns a pair."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Return the output and the keys and values of all rows."""
        q, *new = self.project(x)
        pair = joined(past, *new)
        return self.attend(q, pair), pair


class Grouped(Pair):
    """Right: several query heads share a key head, of which the cache holds the rows."""

    tiled = False

    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int) -> None:
        super().__init__(d_model, n_heads)
        width = d_model // n_heads * n_kv_heads
        self.n_kv_heads = n_kv_heads
        self.k_proj, self.v_proj = (nn.Linear(d_model, width) for _ in range(2))

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Return the output and the keys and values of all rows."""
        heads = (self.n_heads, self.n_kv_heads, self.n_kv_heads)
        q, *new = (
            p(x).unflatten(-1, (count, -1)).transpose(1, 2)
            for p, count in zip((self.q_proj, self.k_proj, self.v_proj), heads, strict=True)
        )
        pair, times = joined(past, *new), self.n_heads // self.n_kv_heads
        if self.tiled and past is not None:
            return self.attend(q, [each.repeat(1, times, 1, 1) for each in pair]), pair
        return self.attend(q, [each.repeat_interleave(times, dim=1) for each in pair]), pair


class Tiled(Grouped):
    """Wrong: with a cache the key heads are tiled in place of repeated."""

    tiled = True


class Stacked(Layer):
    """Takes one array, and returns it where it is asked for."""

    def forward(self, x: Tensor, layer_past: Any = None, use_cache: bool = False) -> Any:
        """Return the output and, where asked, keys and values in one array."""
        q, *new = self.project(x)
        pair = joined(layer_past, *new)
        return self.attend(q, pair), torch.stack(pair) if use_cache else None


class TwoParameters(Layer):
    """Takes keys and values one by one."""

    def forward(self, x: Tensor, past_k: Any = None, past_v: Any = None) -> Any:
        """Return three arrays."""
        q, *new = self.project(x)
        k, v = joined(None if past_k is None else (past_k, past_v), *new)
        return self.attend(q, (k, v)), k, v


class Dictionary(Layer):
    """Fills a dictionary of the caller's."""

    def forward(self, x: Tensor, incremental_state: Any = None) -> Tensor:
        """Return the output alone."""
        q, *pair = self.project(x)
        if incremental_state is not None:
            pair = list(joined(incremental_state.get("kv"), *pair))
            incremental_state["kv"] = pair
        return self.attend(q, pair)


class Inside(Layer):
    """Keeps keys and values in buffers of its own."""

    buffers_of_rows: Any = None

    def forward(self, x: Tensor, start_pos: int = 0, use_cache: bool = False) -> Tensor:
        """Return the output alone."""
        q, *pair = self.project(x)
        if use_cache:
            if self.buffers_of_rows is None:
                self.buffers_of_rows = [torch.zeros_like(a[:, :, :1]).repeat(1, 1, 32, 1)
                                        for a in pair]  # fmt: skip
            end = start_pos + x.shape[1]
            for buffer, new in zip(self.buffers_of_rows, pair, strict=True):
                buffer[:, :, start_pos:end] = new.detach()
            pair = [buffer[:, :, :end] for buffer in self.buffers_of_rows]
        return self.attend(q, pair)


class FirstRow(Layer):
    """Keeps keys and values always, and takes the position at which a call begins."""

    held: Any = None

    def forward(self, x: Tensor, start_pos: int) -> Tensor:
        """Return the output alone."""
        q, *new = self.project(x)
        past = None if self.held is None else [each[:, :, :start_pos] for each in self.held]
        self.held = joined(past if start_pos else None, *new)
        return self.attend(q, self.held)


class Offset(Layer):
    """Takes a pair, and the position at which its causal rule begins."""

    def forward(self, x: Tensor, past_kv: Any = None, position_offset: int = 0) -> Any:
        """Return the output and the pair."""
        q, *new = self.project(x)
        pair = joined(past_kv, *new)
        return self.attend(q, pair, behind=position_offset), pair


class FirstRowStale(FirstRow):
    """Sees what longer sequences left behind its last row, in calls of one row."""

    longest: Any = None

    def forward(self, x: Tensor, start_pos: int) -> Tensor:
        """Attend to all that was kept, behind the rows up to this one."""
        output = super().forward(x, start_pos)
        end = start_pos + x.shape[1]
        if self.longest is None or self.longest[0].shape[2] <= end:
            self.longest = self.held
        if x.shape[1] > 1:
            return output
        q, *_ = self.project(x)
        kept = [each[:, :, end:] for each in self.longest]
        return self.attend(q, joined(self.held, *kept))


PROTOCOLS = {
    Pair: CacheUse(("past",), places=(0,)),
    Stacked: CacheUse(("layer_past",), ("use_cache",), places=(0,)),
    TwoParameters: CacheUse(("past_k", "past_v"), places=(0, 1)),
    Dictionary: CacheUse(("incremental_state",), begun="dict"),
    Inside: CacheUse((), ("use_cache",), ("start_pos",)),
    FirstRow: CacheUse((), (), ("start_pos",)),
    Offset: CacheUse(("past_kv",), (), ("position_offset",), places=(0,)),
}


class TopLeft(Pair):
    """Counts the new rows from 0 in the causal mask."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Hide what lies behind the first rows."""
        q, *new = self.project(x)
        pair = joined(past, *new)
        return self.attend(q, pair, behind=0), pair


class ValuesFirst(Pair):
    """Puts the new values before the cached ones."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Join keys and values in unlike orders."""
        q, *new = self.project(x)
        k, v = joined(past, *new)
        v = v if past is None else v.roll(x.shape[1], dims=2)
        return self.attend(q, (k, v)), (k, v)


class Leaves(Pair):
    """Scales by what the last cache held, also without one."""

    held = 1

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Multiply the output of a call without a cache after one with it."""
        output, pair = super().forward(x, past)
        if past is not None:
            self.held = 2
        return output * (self.held if past is None else 1), pair


class Ignores(Layer):
    """Takes a cache and reads nothing of it."""

    def forward(self, x: Tensor, past_key_value: Any = None, use_cache: bool = False) -> Any:
        """Return what it was passed."""
        del use_cache
        q, *kv = self.project(x)
        return self.attend(q, kv), past_key_value


class OneRowAtATime(Pair):
    """Hides nothing among the new rows of a call with a cache."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Let a new row see the next one."""
        q, *new = self.project(x)
        pair = joined(past, *new)
        return self.attend(q, pair, behind=None if past is None else pair[0].shape[2]), pair


class TopLeftOfSeveral(TopLeft):
    """Counts the new rows from 0 in the causal mask, and has none for a single one."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Hide nothing from one row."""
        return super().forward(x, past) if x.shape[1] > 1 else Pair.forward(self, x, past)


class NotItself(Pair):
    """Hides several new rows with a cache from themselves."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Move the causal mask by one key where several rows come behind others."""
        q, *new = self.project(x)
        pair = joined(past, *new)
        before = pair[0].shape[-2] - x.shape[1]
        several = before > 0 and x.shape[1] > 1
        return self.attend(q, pair, behind=before - several), pair


class Unmasked(Pair):
    """Hides nothing: masks are its caller's."""

    short = 0  # rows of the cache that several new rows do not see

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Attend to all rows, those of the cache and the new ones."""
        q, *new = self.project(x)
        pair = joined(past, *new)
        left = self.short * (past is not None and x.shape[1] > 1)
        return self.attend(q, [each[:, :, left:] for each in pair], behind=pair[0].shape[2]), pair


class UnmaskedShort(Unmasked):
    """Leaves out the first row of the cache where several rows come."""

    short = 1


class BeginsAnew(Pair):
    """Begins a sequence where several rows come, and continues it where one comes."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Forget the cache of several rows."""
        return super().forward(x, None if x.shape[1] > 1 else past)


class LastRowOfEach(Pair):
    """Returns the last of its new rows behind those that it was passed."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Attend to all rows, and drop all new ones but the last."""
        output, _ = super().forward(x, past)
        _, *new = self.project(x)
        return output, joined(past, *(each[:, :, -1:] for each in new))


class ManyRows(Pair):
    """Returns a row for each key where it has a cache."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Return as many rows as there are keys."""
        output, pair = super().forward(x, past)
        return output.expand(-1, pair[0].shape[2], -1) if past is not None else output, pair


class NoNumbers(Pair):
    """Returns a cache of NaN."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Return the right output and a wrong cache."""
        output, pair = super().forward(x, past)
        return output, tuple(each * torch.nan for each in pair)


class Float32Cache(Pair):
    """Returns a cache in float32."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Attend in the dtype of the input."""
        past = past and tuple(each.to(x.dtype) for each in past)
        output, pair = super().forward(x, past)
        return output, tuple(each.float() for each in pair)


class OfFourRows(Pair):
    """Has room for four rows, and refuses more by a ValueError."""

    error: type[Exception] = ValueError

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Refuse what is longer."""
        if past is not None and past[0].shape[2] + x.shape[1] > 4:
            raise self.error("a cache of four rows")
        return super().forward(x, past)


class BreaksAtFourRows(OfFourRows):
    """Raises an IndexError there."""

    error = IndexError


class Concatenates(Pair):
    """Joins the cache along another axis, which raises."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Join heads."""
        q, *new = self.project(x)
        pair = new if past is None else [torch.cat(p, 1) for p in zip(past, new, strict=True)]
        return self.attend(q, pair), tuple(new)


class OfMemory(Layer):
    """Takes the keys and values of earlier calls in the place of its own, as of a context."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, past_key_value: Any = None
    ) -> tuple[Tensor, Any]:
        """Return attention without the causal rule."""
        q, _, _ = self.project(query)
        pair = past_key_value or (self.project(key)[1], self.project(value)[2])
        return self.attend(q, pair, behind=pair[0].shape[2]), pair


class OddlyAnnotated(Pair):
    """Has annotations that are no types, and cannot be hashed."""

    def forward(self, x: Tensor, past: Any = None) -> Any:
        """Return what a pair does."""
        return super().forward(x, past)

    forward.__annotations__ |= {"x": [Tensor], "past": {"k": Tensor}}


class Updates(Layer):
    """Has a cache of transformers join the rows of its own number."""

    def __init__(self, d_model: int, n_heads: int, layer_idx: int | None = None) -> None:
        super().__init__(d_model, n_heads)
        self.layer_idx = layer_idx

    def forward(self, x: Tensor, past_key_values: Any = None) -> Tensor:
        """Return the output alone."""
        q, *pair = self.project(x)
        if past_key_values is not None:
            pair = past_key_values.update(*pair, self.layer_idx)
        return self.attend(q, pair)


class DynamicCache(dict[int, Any]):
    """Keys and values by the number of a layer, as transformers' class of the name."""

    def update(self, key: Tensor, value: Tensor, layer_idx: int) -> Any:  # type: ignore[override]  # another method
        """Return the rows of a layer with the new ones behind them."""
        self[layer_idx + 0] = joined(self.get(layer_idx), key, value)
        return self[layer_idx]
