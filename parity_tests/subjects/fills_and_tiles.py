"""Finite fills, masks of which a layer takes 1 - mask, tiles called as lengths: right and wrong."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own way to import it)
from torch import nn


class CausalFilled(nn.Module):
    """Causal by itself; hidden scores are filled as half precision can."""

    fill = -1e4

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def heads(self, x):
        """Return q, k and v (N, H, L, D)."""
        return tuple(
            linear(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear in (self.q_proj, self.k_proj, self.v_proj)
        )

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = self.heads(x)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, self.fill).softmax(dim=-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


class CausalFilledBesideAMask(CausalFilled):
    """Its own rule is filled, and a mask is added besides, in which -inf hides."""

    def forward(self, x, attention_mask=None):
        """Return (N, L, E)."""
        q, k, v = self.heads(x)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, self.fill)
        scores = scores if attention_mask is None else scores + attention_mask
        return self.out_proj((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


class CausalFilledTooHigh(CausalFilled):
    """Wrong: scores of some tens lie below the fill."""

    fill = -20.0


class CausalFilledByThousand(CausalFilled):
    """A fill that no score lies below whose exp is a number."""

    fill = -1e3


class CausalFilledByFiveThousand(CausalFilled):
    """A fill between that and -1e4."""

    fill = -5e3


class CausalFilledWithinExp(CausalFilled):
    """Wrong: exp of scores below the fill is still a number in float64."""

    fill = -600.0


def filled_by_lengths(q, k, v, valid_lens=None, fill=-1e4):
    """Return (N, H, L, D); keys from `valid_lens` (N,) on are filled."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if valid_lens is not None:
        hidden = np.arange(k.shape[-2]) >= np.asarray(valid_lens)[:, None, None, None]
        scores = np.where(hidden, np.asarray(fill, scores.dtype), scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def filled_below_all(q, k, v, valid_lens=None):
    """No case has scores below the fill."""
    return filled_by_lengths(q, k, v, valid_lens, fill=-1e6)


def filled_by_lengths_too_high(q, k, v, valid_lens=None):
    """Wrong: scores of some tens lie below the fill."""
    return filled_by_lengths(q, k, v, valid_lens, fill=-20.0)


class OneMinusMask(nn.Module):
    """A required mask (N, L, S) of ones and zeros; torch subtracts no booleans."""

    masked_heads = slice(None)

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value = (nn.Linear(embed_dim, embed_dim) for _ in range(3))

    def forward(self, query_states, key_states, value_states, attention_mask):
        """Return (N, L, E)."""
        q, k, v = (
            linear(rows).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear, rows in (
                (self.query, query_states), (self.key, key_states), (self.value, value_states)
            )
        )  # fmt: skip
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        lowered = torch.zeros_like(scores)
        lowered[:, self.masked_heads] = (1 - attention_mask.unsqueeze(1)) * -1e9
        return ((scores + lowered).softmax(dim=-1) @ v).transpose(1, 2).flatten(2)


class OneMinusMaskFirstHead(OneMinusMask):
    """Wrong: only the first head is masked."""

    masked_heads = slice(0, 1)


class SwitchOrShape(CausalFilled):
    """torch's kernels take a mask of four axes beside `is_causal`, and raise at one of three."""

    def forward(self, x, attn_mask=None, is_causal=False):
        """Return (N, L, E)."""
        heads_out = self.attended(*self.heads(x), attn_mask, is_causal)
        return self.out_proj(heads_out.transpose(1, 2).flatten(2))

    def attended(self, q, k, v, attn_mask, is_causal):
        """Return (N, H, L, D)."""
        return F.scaled_dot_product_attention(q, k, v, attn_mask, is_causal=is_causal)


class SwitchInPlaceOfMask(SwitchOrShape):
    """Wrong: the mask is not read where the switch is on."""

    def attended(self, q, k, v, attn_mask, is_causal):
        """Return (N, H, L, D)."""
        return super().attended(q, k, v, None if is_causal else attn_mask, is_causal)


class KeyTiles(nn.Module):
    """q, k, v (N, H, L, D); keys by tiles of `block_size`, which bounds no length."""

    drops_the_rest = False

    def __init__(self, block_size=16):
        super().__init__()
        self.block_size = block_size

    def forward(self, q, k, v):
        """Return (N, H, L, D)."""
        size = min(self.block_size, k.shape[-2])
        stop = k.shape[-2] // size * size if self.drops_the_rest else k.shape[-2]
        scores = [
            q @ k[..., start : start + size, :].mT / math.sqrt(q.shape[-1])
            for start in range(0, stop, size)
        ]
        return torch.cat(scores, dim=-1).softmax(dim=-1) @ v[..., :stop, :]


class KeyTilesDropped(KeyTiles):
    """Wrong: the keys of an unfinished last tile are left out."""

    drops_the_rest = True


class LargestLength(nn.Module):
    """q, k, v (N, H, L, D), by a buffer where it is causal."""

    def __init__(self, max_seq_len=16, causal=False):
        super().__init__()
        self.causal = causal
        self.register_buffer("hidden", torch.ones(max_seq_len, max_seq_len).triu(1).bool())

    def forward(self, q, k, v):
        """Return (N, H, L, D)."""
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if self.causal:
            scores = scores.masked_fill(self.hidden[: q.shape[-2], : k.shape[-2]], -torch.inf)
        return scores.softmax(dim=-1) @ v


class BoundedLength(nn.Module):
    """q, k, v (N, H, L, D), causal by a buffer of `block_size`, which bounds the length."""

    def __init__(self, block_size=16):
        super().__init__()
        self.register_buffer("hidden", torch.ones(block_size, block_size).triu(1).bool())

    def forward(self, q, k, v):
        """Return (N, H, L, D)."""
        length = q.shape[-2]
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(self.hidden[:length, :length], -torch.inf)
        return scores.softmax(dim=-1) @ v
