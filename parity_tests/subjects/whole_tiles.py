"""Attentions that take lengths alone which whole tiles, or pairs, fill; wrong ones beside."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

TILE = 16


def tiled(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """Attend in tiles of 16 rows and 16 keys, all of them whole; (N, L, D)."""
    return _tiled(q, k, v, is_causal, 1 / math.sqrt(q.shape[-1]))


def tiled_unscaled(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """Wrong: the same without a scale from the second tile of keys on."""
    return _tiled(q, k, v, is_causal, 1 / math.sqrt(q.shape[-1]), later=1.0)


def tiled_without_rule(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """Wrong: the same, with a switch that nothing reads."""
    return _tiled(q, k, v, False, 1 / math.sqrt(q.shape[-1]))


def by_heads(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """Attend as torch's function does, whose arguments these are; (N, H, L, D)."""
    rows = (each.flatten(0, 1) for each in (q, k, v))
    return tiled(*rows, is_causal).unflatten(0, q.shape[:2])


def by_heads_doubled(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """Wrong: with the scores twice as large."""
    return by_heads(2 * q, k, v, is_causal)


def _tiled(
    q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float, later: float = 0.0
) -> Tensor:
    output = torch.empty(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
    for i in range(0, q.shape[1], TILE):
        rows = q[:, i : i + TILE]
        top = torch.full((len(q), TILE), -torch.inf, dtype=q.dtype)
        total, found = torch.zeros_like(top), torch.zeros_like(output[:, :TILE])
        for j in range(0, k.shape[1], TILE):
            scores = rows @ k[:, j : j + TILE].mT * (later if later and j else scale)
            if is_causal:
                hidden = torch.arange(j, j + TILE) > torch.arange(i, i + TILE)[:, None]
                scores = scores.masked_fill(hidden, -torch.inf)
            new = torch.maximum(top, scores.amax(-1))
            powers, factor = torch.exp(scores - new[..., None]), torch.exp(top - new)
            total = factor * total + powers.sum(-1)
            found = factor[..., None] * found + powers @ v[:, j : j + TILE]
            top = new
        output[:, i : i + TILE] = found / total[..., None]
    return output


class EvenLengths(nn.Module):
    """Right: a layer that takes even lengths alone, with a mask (N, L, S) of what is seen."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.heads = n_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )

    def forward(self, x: Tensor, context: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return (N, L, E)."""
        if x.shape[1] % 2 or context.shape[1] % 2:
            raise ValueError(f"got odd lengths {x.shape[1]} and {context.shape[1]}")
        rows = self.q_proj(x), self.k_proj(context), self.v_proj(context)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in rows)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(self.hidden(mask)[:, None], -torch.inf)
        joined: Tensor = self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return joined

    def hidden(self, mask: Tensor) -> Tensor:
        """Return what a mask hides."""
        return mask == 0


class EvenLengthsOfFirstSample(EvenLengths):
    """Wrong: the mask of the first sample is that of all."""

    def hidden(self, mask: Tensor) -> Tensor:
        """Return what a mask hides."""
        return mask[:1] == 0
