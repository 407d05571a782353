"""Attention within a window of keys: numbers, pairs, switches and blocks, right and wrong."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


def attend(q, k, v, keep):
    """Return attention of (N, H, L, D) to the keys that are kept."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return scores.masked_fill(~keep, -torch.inf).softmax(-1) @ v


def behind(q, k):
    """Return how far each key lies behind each row, (L, S)."""
    return torch.arange(q.shape[-2])[:, None] - torch.arange(k.shape[-2])


def causal_window(q, k, v, window: int):
    """Right: a row sees itself and the window - 1 keys before it."""
    distance = behind(q, k)
    return attend(q, k, v, (distance >= 0) & (distance < window))


def shorter_from_row_64(q, k, v, window: int):
    """Wrong: rows from 64 on see a key less."""
    distance = behind(q, k)
    size = torch.full((q.shape[-2], 1), window)
    size[64:] -= int(window > 1)
    return attend(q, k, v, (distance >= 0) & (distance < size))


def raises_beyond(q, k, v, window: int):
    """Wrong: a window longer than the sequence raises, unless it is twice as long."""
    distance = behind(q, k)
    torch.zeros(q.shape[-2])[window if q.shape[-2] < window < 2 * q.shape[-2] else 0]
    return attend(q, k, v, (distance >= 0) & (distance < window))


def refuses_beyond(q, k, v, window: int):
    """Right: such a window is refused on purpose, unless it is twice all keys."""
    if q.shape[-2] < window < 2 * q.shape[-2]:
        raise ValueError("the window is longer than the sequence")
    return causal_window(q, k, v, window)


def on_both_sides(q, k, v, window_size=None):
    """Right: half of the window lies on either side."""
    if window_size is None:
        return attend(q, k, v, behind(q, k) == behind(q, k))
    return attend(q, k, v, behind(q, k).abs() <= window_size // 2)


def less_of_eights(q, k, v, window_size=None):
    """Wrong: windows that 8 divides have a key less on the right."""
    if window_size is None:
        return on_both_sides(q, k, v)
    half, distance = window_size // 2, behind(q, k)
    right = half - (window_size % 8 == 0)
    return attend(q, k, v, (distance <= half) & (-distance <= right))


def by_sides(q, k, v, window_size=(-1, -1)):
    """Right: keys to the left and to the right, -1 for all."""
    left, right = window_size
    keep = (behind(q, k) <= left) | torch.tensor(left < 0)
    return attend(q, k, v, keep & ((-behind(q, k) <= right) | torch.tensor(right < 0)))


def by_required_sides(q, k, v, window_size: tuple[int, int], enable_gqa: bool):
    """Right: the same, whose sides and switch have no default."""
    if enable_gqa is not False:
        raise TypeError("enable_gqa must be bool")
    return by_sides(q, k, v, window_size)


def within_radius(q, k, v, radius: int = 4):
    """Right: keys up to a distance on either side, which is short by default."""
    return attend(q, k, v, behind(q, k).abs() <= radius)


def in_bands(q, k, v, radius):
    """Right for one length: q, k, v: (N, H, T, D). Keys behind the T of q are left out."""
    length = q.shape[-2]
    shown = k[..., :length, :], v[..., :length, :]
    return within_radius(q, *shown, radius)


def in_wrong_bands(q, k, v, radius):
    """Wrong: scores are too large. It takes q, k and v of shape (N, H, T, D)."""
    return in_bands(2 * q, k, v, radius)


def in_any_bands(q, k, v, radius):
    """Right for all lengths, though it says q/k/v: (N, H, T, D)."""
    return within_radius(q, k, v, radius)


def sides_exchanged_from_31(q, k, v, window_size=(-1, -1)):
    """Wrong: where the left side is longer than 31, the sides are exchanged."""
    left, right = window_size
    return by_sides(q, k, v, (right, left) if left > 31 else (left, right))


def without_the_rule(q, k, v, is_causal=False, window=None):
    """Unknown: with the causal rule the window is not read."""
    distance = behind(q, k)
    if is_causal:
        return attend(q, k, v, distance >= 0)
    return attend(q, k, v, distance.abs() < (distance.numel() if window is None else window))


def nothing_with_the_rule(q, k, v, is_causal=False, window=None):
    """Wrong: with the causal rule a window of one key has none."""
    distance = behind(q, k)
    size = distance.numel() if window is None else window
    if is_causal:
        return attend(q, k, v, (distance >= int(size == 1)) & (distance < size))
    return attend(q, k, v, distance.abs() < size)


def in_blocks(q, k, v, window):
    """Right: rows are cut into blocks of the window, which has to divide their number."""
    size = min(window, q.shape[-2])
    parts = (each.unflatten(-2, (-1, size)) for each in (q, k, v))
    q, k, v = parts
    every = torch.ones(size, size, dtype=torch.bool)
    return attend(q, k, v, every).flatten(-3, -2)


def ignored(q, k, v, window=None):
    """Unknown: the window is never read."""
    return on_both_sides(q, k, v)


def dilated(q, k, v, window=None):
    """Unknown: every window-th key is seen."""
    return attend(q, k, v, behind(q, k) % (window or 1) == 0)


def a_mistake(q, k, v, window=None):
    """Unknown: each window raises."""
    return on_both_sides(q, k, v) if window is None else q[window.left]


class Switched(nn.Module):
    """Right: the window acts where a switch of the constructor says so."""

    def __init__(self, embed_dim, num_heads, sliding_window=4096, *, use_sliding_window=False):
        super().__init__()
        self.num_heads = num_heads
        self.window = sliding_window if use_sliding_window else None
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def keep(self, q, k):
        """Return the keys that are kept."""
        distance = behind(q, k)
        window = distance.numel() if self.window is None else self.window
        return (distance >= 0) & (distance < window)

    def forward(self, x):
        """Return (N, L, E)."""
        parts = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        q, k, v = (p.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p in parts)
        return self.out_proj(attend(q, k, v, self.keep(q, k)).transpose(1, 2).flatten(2))


class SwitchedShort(Switched):
    """Wrong: windows of more than 16 keys have as many."""

    def keep(self, q, k):
        """Return the keys that are kept."""
        if self.window is not None and q.shape[-2] > 16:
            self.window = min(self.window, 16)
        return super().keep(q, k)


class OfLargestLength(Switched):
    """Right: its mask has as many rows as the window, which no sequence may pass."""

    def __init__(self, embed_dim, num_heads, window_size=2048):
        super().__init__(embed_dim, num_heads)
        self.register_buffer("mask", torch.ones(window_size, window_size).tril().bool())

    def keep(self, q, k):
        """Return the keys that are kept."""
        short = self.mask[: q.shape[-2], : k.shape[-2]]
        return short & (behind(q, k) == behind(q, k))


class OfPlane(Switched):
    """Right: the rows are those of a window of a plane, of which the size says nothing here."""

    def __init__(self, embed_dim, num_heads, window_size=(7, 7)):
        super().__init__(embed_dim, num_heads)
        self.window_size = window_size


class OfSwitch(Switched):
    """Right: a switch of something else, with no size beside it."""

    def __init__(self, embed_dim, num_heads, *, use_window=False):
        super().__init__(embed_dim, num_heads)
        self.use_window = use_window


class OfContext(OfLargestLength):
    """Right: its mask has as many rows as the largest length, by another name."""

    def __init__(self, embed_dim, num_heads, context_window=256):
        super().__init__(embed_dim, num_heads, context_window)


class WithTheRule(nn.Module):
    """Right: the window of a call acts where the causal rule does."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv_proj = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, is_causal=False, window=None):
        """Return (N, L, E)."""
        parts = self.qkv_proj(x).chunk(3, -1)
        q, k, v = (p.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p in parts)
        distance = behind(q, k)
        keep = distance == distance
        if is_causal:
            keep = distance >= 0 if window is None else (distance >= 0) & (distance <= window)
        return self.out_proj(attend(q, k, v, keep).transpose(1, 2).flatten(2))


given = WithTheRule(8, 2)


def short_by_default(q, k, v, window: int = 4):
    """Right: few keys are seen where the window is not passed."""
    return causal_window(q, k, v, window)


def ignored_from_row_150(q, k, v, window=None):
    """Wrong: long sequences have no window."""
    return on_both_sides(q, k, v, window if q.shape[-2] <= 150 else None)


def filled_with_30(q, k, v, window_size=None):
    """Wrong: keys outside of the window get a score of -30, which others lie below."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if window_size is not None:
        scores = scores.masked_fill(behind(q, k).abs() > window_size, -30.0)
    return scores.softmax(-1) @ v


def masked(q, k, v, key_padding_mask=None, window=None):
    """Right: a key is hidden by either."""
    distance = behind(q, k)
    keep = (distance.abs() < (distance.numel() if window is None else window))[None, None]
    if key_padding_mask is not None:
        keep = keep & ~key_padding_mask[:, None, None, :]
    return attend(q, k, v, keep)


def mask_dropped(q, k, v, key_padding_mask=None, window=None):
    """Wrong: with a window the mask is not read."""
    return masked(q, k, v, key_padding_mask if window is None else None, window)


def mask_instead(q, k, v, key_padding_mask=None, window=None):
    """Right, with a remark: a window is for calls without a mask."""
    return masked(q, k, v, key_padding_mask, window if key_padding_mask is None else None)


class OfHalves(nn.Module):
    """Right: half of the window lies on either side, fewer keys than in the longest sequences."""

    def __init__(self, embed_dim, num_heads, attention_window=512):
        super().__init__()
        self.num_heads, self.half = num_heads, attention_window // 2
        self.qkv_proj = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        """Return (N, L, E)."""
        parts = self.qkv_proj(x).chunk(3, -1)
        q, k, v = (p.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p in parts)
        heads = attend(q, k, v, behind(q, k).abs() <= self.half)
        return self.out_proj(heads.transpose(1, 2).flatten(2))


@dataclass
class Sizes:
    """Sizes of a layer."""

    embed_dim: int = 64
    num_heads: int = 8
    sliding_window: int | None = 16


class OfConfiguration(nn.Module):
    """Right: its window is one of the sizes, and rows may be asked one by one."""

    later = 0

    def __init__(self, config: Sizes):
        super().__init__()
        self.num_heads, self.window = config.num_heads, config.sliding_window
        self.qkv_proj = nn.Linear(config.embed_dim, 3 * config.embed_dim)
        self.out_proj = nn.Linear(config.embed_dim, config.embed_dim)

    def forward(self, x, past=None, use_cache=False):
        """Return (N, L, E), and keys and values where they are asked for."""
        parts = self.qkv_proj(x).chunk(3, -1)
        q, k, v = (p.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p in parts)
        before = 0
        if past is not None:
            before = past[0].shape[-2]
            k, v = (torch.cat(each, -2) for each in zip(past, (k, v), strict=True))
        distance = behind(q, k) + before
        window = distance.numel() if self.window is None else self.window
        keep = (distance >= 0) & (distance < window + self.later * (before > 0))
        out = self.out_proj(attend(q, k, v, keep).transpose(1, 2).flatten(2))
        return (out, (k, v)) if use_cache else out


class CachedLonger(OfConfiguration):
    """Wrong: rows that are asked with the cache see a key more."""

    later = 1


class ConfiguredShort(OfConfiguration):
    """Wrong: windows of more than 8 keys have one less."""

    def __init__(self, config: Sizes):
        super().__init__(config)
        if self.window is not None and self.window > 8:
            self.window -= 1


class ReadByOthers(OfConfiguration):
    """Right: what calls it makes a mask of the window."""

    def __init__(self, config: Sizes):
        super().__init__(config)
        self.shown, self.window = config.sliding_window, None


class IgnoredByRule(OfConfiguration):
    """Unknown: a causal layer that never reads the window of its constructor."""

    def __init__(self, embed_dim, num_heads, window=None):
        super().__init__(Sizes(embed_dim, num_heads, None))


class KeepsBand(nn.Module):
    """Wrong: the band of its first window is kept for the next."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads, self.band = num_heads, None
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, window=None):
        """Return (N, L, E)."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        distance = behind(q, k)
        if self.band is None or len(self.band) != len(distance):
            size = len(distance) if window is None else window
            self.band = (distance >= 0) & (distance < size)
        return self.out_proj(attend(q, k, v, self.band).transpose(1, 2).flatten(2))
