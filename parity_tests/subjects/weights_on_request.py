"""Layers that return weights when asked, with masks (L, S) or (N * H, L, S): right and wrong ones."""

from __future__ import annotations

import torch
from torch import nn


class OnRequest(nn.Module):
    """Four Linears; ``need_weights`` asks for the weights, averaged or of each head."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def laid(self, attn_mask, samples):
        """Return a mask (N * H, L, S) as (N, H, L, S)."""
        return attn_mask.unflatten(0, (samples, self.num_heads))

    def projected(self, rows):
        """Return the output of rows (N, L, E)."""
        return self.out_proj(rows)

    def forward(
        self, query, key, value, attn_mask=None, need_weights=False, average_attn_weights=True
    ):
        """Return (output, weights or None); True hides."""
        q, k, v = (
            linear(rows).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear, rows in (
                (self.q_proj, query), (self.k_proj, key), (self.v_proj, value),
            )
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if attn_mask is not None:
            mask = self.laid(attn_mask, len(query)) if attn_mask.ndim != 2 else attn_mask
            if mask.dtype == torch.bool:
                scores = scores.masked_fill(mask, -torch.inf)
            else:
                scores = scores + mask
        weights = scores.softmax(dim=-1)
        rows = (weights @ v).transpose(1, 2).flatten(2)
        if not need_weights:
            return self.out_proj(rows), None
        return self.projected(rows), weights.mean(dim=1) if average_attn_weights else weights


class BiasForgotten(OnRequest):
    """Wrong: no bias of the output where weights are asked for."""

    def projected(self, rows):
        """Return the output of rows (N, L, E)."""
        return rows @ self.out_proj.weight.T


class HeadsFirst(OnRequest):
    """Wrong: a mask (N * H, L, S) is read with the heads before the samples."""

    def laid(self, attn_mask, samples):
        """Return a mask (N * H, L, S) as (N, H, L, S)."""
        return attn_mask.unflatten(0, (self.num_heads, samples)).transpose(0, 1)


class TwoAxes(OnRequest):
    """Right: masks have two axes, and one of three is refused."""

    def laid(self, attn_mask, samples):
        """Refuse a third axis."""
        raise ValueError(f"attn_mask has {attn_mask.ndim} axes, but should have 2")


class WrongByDefault(OnRequest):
    """Wrong: by default half as much again comes out, with weights whose heads stand last."""

    def forward(self, query, key, value, need_weights=True):
        """Return (output, weights or None)."""
        output, weights = super().forward(
            query, key, value, need_weights=need_weights, average_attn_weights=False
        )
        return (1.5 * output, weights.movedim(1, -1)) if need_weights else (output, None)


class ReturnsScores(OnRequest):
    """Right: the scores before the softmax are returned on request."""

    def forward(self, query, key, value, return_scores=False):
        """Return the output, perhaps with scores (N, H, L, S)."""
        output, weights = super().forward(
            query, key, value, need_weights=True, average_attn_weights=False
        )
        return (output, weights.log()) if return_scores else output


class Head(nn.Module):
    """One head, and its weights."""

    def __init__(self, width, head_width):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, head_width) for _ in range(3))

    def forward(self, x):
        q, k, v = self.query(x), self.key(x), self.value(x)
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return weights @ v, weights


class StackedBehindSamples(nn.Module):
    """Right of samples: the weights are stacked behind their axis, which one sample alone lacks."""

    def __init__(self, hidden_size, num_heads):
        super().__init__()
        width = hidden_size // num_heads
        self.heads = nn.ModuleList([Head(hidden_size, width) for _ in range(num_heads)])
        self.out = nn.Linear(hidden_size, hidden_size)

    def forward(self, x, output_attentions=False):
        """Return (N, L, E) and weights (N, H, L, L), or None."""
        rows, weights = zip(*(head(x) for head in self.heads), strict=True)
        output = self.out(torch.cat(rows, dim=-1))
        return output, torch.stack(weights, dim=1) if output_attentions else None
