"""Attentions whose calls get rotations of positions, which turn nothing where all angles are 0."""

import math

import numpy as np
import torch
from torch import nn


class Projected(nn.Module):
    """Four projections, and heads (N, H, L, D)."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, dim, bias=False)
        self.wv = nn.Linear(dim, dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def rows(self, x):
        return (
            w(x).view(*x.shape[:2], self.num_heads, self.head_dim)
            for w in (self.wq, self.wk, self.wv)
        )

    def attended(self, q, k, v, mask=None, scale=None):
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        scale = 1 / math.sqrt(self.head_dim) if scale is None else scale
        scores = q @ k.transpose(-2, -1) * scale
        if mask is not None:
            scores = scores + mask
        out = scores.softmax(-1) @ v
        return self.wo(out.transpose(1, 2).flatten(-2))


def turned(x, freqs_cis):
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
    assert freqs_cis.shape == (x.shape[1], x.shape[-1] // 2)
    return torch.view_as_real(pairs * freqs_cis[None, :, None]).flatten(-2).type_as(x)


def turned_in_float32(x, freqs_cis):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * freqs_cis[None, :, None]).flatten(-2).type_as(x)


def apply_rotary(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class ByComplexNumbers(Projected):
    def forward(self, x, freqs_cis, mask=None):
        q, k, v = self.rows(x)
        wide = freqs_cis.to(torch.complex128 if x.dtype == torch.float64 else torch.complex64)
        rotate = turned if x.dtype in {torch.float32, torch.float64} else turned_in_float32
        return self.attended(rotate(q, wide), rotate(k, wide), v, mask)


def rotary_in_float32(q, k, freqs_cis):
    return turned_in_float32(q, freqs_cis), turned_in_float32(k, freqs_cis)


class InFloat32(Projected):
    """Rotates in float32 alone."""

    def forward(self, x, freqs_cis, mask=None):
        q, k, v = self.rows(x)
        q, k = rotary_in_float32(q, k, freqs_cis)
        return self.attended(q, k, v, mask)


class SoftmaxInFloat32(Projected):
    """Wrong in float64: the softmax has half of its digits as well."""

    def forward(self, x, freqs_cis):
        q, k, v = self.rows(x)
        q, k = rotary_in_float32(q, k, freqs_cis)
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        out = scores.float().softmax(-1).type_as(v) @ v
        return self.wo(out.transpose(1, 2).flatten(-2))


class ByCosinesAndSines(Projected):
    def forward(self, x, cos, sin, mask=None):
        q, k, v = self.rows(x)
        cos, sin = cos[:, None], sin[:, None]
        assert cos.shape == (x.shape[1], 1, self.head_dim)
        return self.attended(apply_rotary(q, cos, sin), apply_rotary(k, cos, sin), v, mask)


class ByPair(Projected):
    def forward(self, hidden_states, position_embeddings, attention_mask=None):
        q, k, v = self.rows(hidden_states)
        cos, sin = (each.unsqueeze(2) for each in position_embeddings)
        assert cos.ndim == 4
        q, k = apply_rotary(q, cos, sin), apply_rotary(k, cos, sin)
        return self.attended(q, k, v, attention_mask)


class ByPositions(Projected):
    """Turns rows by their numbers, which the call gets."""

    def forward(self, x, position_ids):
        q, k, v = self.rows(x)
        step = 10000.0 ** -(torch.arange(self.head_dim // 2).to(x) / (self.head_dim // 2))
        angles = position_ids.to(x)[..., None] * torch.cat((step, step))
        cos, sin = angles.cos().unsqueeze(-2), angles.sin().unsqueeze(-2)
        return self.attended(apply_rotary(q, cos, sin), apply_rotary(k, cos, sin), v)


class ByAngles(Projected):
    def forward(self, x, rotary_angles):
        q, k, v = self.rows(x)
        assert rotary_angles.shape == (x.shape[1], self.head_dim)
        cos, sin = rotary_angles.cos()[:, None], rotary_angles.sin()[:, None]
        return self.attended(apply_rotary(q, cos, sin), apply_rotary(k, cos, sin), v)


class Stacked(Projected):
    def forward(self, x, rope_cache):
        q, k, v = self.rows(x)
        cos, sin = (each[:, None] for each in rope_cache.unbind(-1))
        assert rope_cache.shape == (x.shape[1], self.head_dim // 2, 2)

        def both(rows):
            even, odd = rows[..., ::2], rows[..., 1::2]
            return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)

        return self.attended(both(q), both(k), v)


class StackedByChannel(Projected):
    def forward(self, x, rope_freqs):
        q, k, v = self.rows(x)
        cos, sin = (each[:, None] for each in rope_freqs.unbind(-1))
        assert rope_freqs.shape == (x.shape[1], self.head_dim, 2)
        return self.attended(apply_rotary(q, cos, sin), apply_rotary(k, cos, sin), v)


class StackedFirst(Projected):
    def forward(self, x, rope, max_length: int):
        if not isinstance(max_length, int):
            raise TypeError(f"max_length is a number, not {type(max_length).__name__}")
        q, k, v = self.rows(x)
        sin, cos = (each[:, None] for each in rope)
        assert rope.shape == (2, x.shape[1], self.head_dim)
        assert x.shape[1] <= max_length
        return self.attended(apply_rotary(q, cos, sin), apply_rotary(k, cos, sin), v)


class Grouped(nn.Module):
    """Fewer heads of keys and values."""

    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, dim // n_heads
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x, freqs_cis):
        n, length, _ = x.shape
        q = self.q_proj(x).view(n, length, self.n_heads, self.head_dim)
        k, v = (w(x).view(n, length, self.n_kv_heads, -1) for w in (self.k_proj, self.v_proj))
        q, k = turned(q, freqs_cis), turned(k, freqs_cis)
        k, v = (e.repeat_interleave(self.n_heads // self.n_kv_heads, dim=2) for e in (k, v))
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        weights = (q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(-2))


class Optional(Projected):
    """Has a table that is None by default, and turns by it all the same."""

    def forward(self, x, rope=None, mask=None):
        q, k, v = self.rows(x)
        return self.attended(turned(q, rope), turned(k, rope), v, mask)


class AddedRows(Projected):
    """Adds positions to what queries and keys are made of."""

    def forward(self, x, pos_embed):
        q, k, _ = self.rows(x + pos_embed)
        _, _, v = self.rows(x)
        return self.attended(q, k, v)


class Unscaled(Projected):
    """Wrong: the scores are not scaled."""

    def forward(self, x, freqs_cis):
        q, k, v = self.rows(x)
        return self.attended(turned(q, freqs_cis), turned(k, freqs_cis), v, scale=1.0)


class InvertedMask(Projected):
    """Wrong: ``key_padding_mask`` is True where a key is hidden, and hides all others."""

    def forward(self, x, freqs_cis, key_padding_mask=None):
        q, k, v = (each.transpose(1, 2) for each in self.rows(x))
        q, k = (turned(each.transpose(1, 2), freqs_cis).transpose(1, 2) for each in (q, k))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        if key_padding_mask is not None:
            scores = scores.masked_fill(~key_padding_mask[:, None, None], -math.inf)
        return self.wo((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))


class LearnedPositions(Projected):
    """No counterpart: learned rows of positions are added."""

    def __init__(self, dim, num_heads, max_len=2200):
        super().__init__(dim, num_heads)
        self.table = nn.Parameter(torch.randn(max_len, dim))

    def forward(self, x, positions):
        q, k, v = self.rows(x + self.table[positions])
        return self.attended(q, k, v)


def attention(q, k, v, freqs):
    """Attention over (N, H, L, D) with rows turned by complex numbers ``freqs`` (L, D / 2)."""

    def rotated(x):
        pairs = x[..., ::2] + 1j * x[..., 1::2]
        pairs = pairs * freqs
        return np.stack((pairs.real, pairs.imag), -1).reshape(x.shape).astype(x.dtype)

    scores = rotated(q) @ np.swapaxes(rotated(k), -1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)) @ v


class Cached(Projected):
    """Keeps the keys and values of ``start_pos`` rows before; row i sees rows 0..i."""

    def __init__(self, dim, num_heads, max_batch=64, max_len=2200):
        super().__init__(dim, num_heads)
        shape = (max_batch, max_len, num_heads, self.head_dim)
        self.register_buffer("keys", torch.zeros(shape), persistent=False)
        self.register_buffer("values", torch.zeros(shape), persistent=False)

    def joined(self, own, before):
        return torch.hstack((before, own))

    @torch.no_grad()
    def forward(self, x, start_pos, freqs_cis):
        q, k, v = self.rows(x)
        n, length = x.shape[:2]
        end = start_pos + length
        self.keys[:n, start_pos:end] = turned(k, freqs_cis)
        self.values[:n, start_pos:end] = v
        own = torch.full((length, length), -math.inf).triu(1)
        mask = self.joined(own, torch.zeros(length, start_pos)).to(x)
        return self.attended(turned(q, freqs_cis), self.keys[:n, :end], self.values[:n, :end], mask)


class CachedMaskBehind(Cached):
    """Wrong: the mask of the new rows stands before that of the earlier ones."""

    def joined(self, own, before):
        return torch.hstack((own, before))


class Slices(Projected):
    """Right: takes of a table for all rows those that follow the rows of its cache."""

    first_diagonal = None

    def forward(self, x, rope, cache=None):
        before = 0 if cache is None else cache[0].shape[1]
        cos, sin = (table[None, before : before + x.shape[1], None] for table in rope)
        q, k, v = self.rows(x)
        q, k = apply_rotary(q, cos, sin), apply_rotary(k, cos, sin)
        if cache is not None:
            k, v = torch.cat((cache[0], k), 1), torch.cat((cache[1], v), 1)
        hidden = torch.full((x.shape[1], k.shape[1]), -math.inf)
        hidden = hidden.triu(1 + (before if self.first_diagonal is None else self.first_diagonal))
        return self.attended(q, k, v, hidden.to(x)), (k, v)


class SlicesFromTheTop(Slices):
    """Wrong: the first of new rows sees the first key alone."""

    first_diagonal = 0


class Prefixed(Projected):
    """Right: causal, but for a prefix that all rows see; padding (N, L), True where a key is."""

    hides_padding = True

    def forward(self, x, prefix_lengths, is_token=None):
        """x (N, L, E); prefix_lengths (N,); is_token: bool, (N, L), True for keys that are seen."""
        row = torch.arange(x.shape[1])
        seen = (row <= row[:, None]) | (row < prefix_lengths[:, None, None])
        if is_token is not None and self.hides_padding:
            seen = seen & is_token[:, None]
        hidden = torch.zeros(seen.shape, dtype=x.dtype).masked_fill(~seen, -torch.inf)
        return self.attended(*self.rows(x), hidden[:, None])


class PrefixedAlone(Prefixed):
    """Wrong: its padding is not read."""

    hides_padding = False


class ByTable(Projected):
    """Gets a pair as one table, and adds a mask without a look at whether there is one."""

    def forward(self, x, table, mask=None):
        q, k, v = self.rows(x)
        cos, sin = (each[:, :, None] for each in table)
        q, k = apply_rotary(q, cos, sin), apply_rotary(k, cos, sin)
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim) + mask
        return self.wo((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))
