"""Masks that are taken in part: causal switches at some lengths, masks of three axes as samples."""

from __future__ import annotations

import torch
from torch import nn


class Layer(nn.Module):
    """Four Linears; ``hidden`` marks keys with True."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def attended(self, query, key, value, hidden):
        """Return (N, L, E)."""
        q, k, v = (
            linear(rows).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear, rows in (
                (self.q_proj, query), (self.k_proj, key), (self.v_proj, value),
            )
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        return self.out_proj((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


class CausalAtEqualLengths(Layer):
    """Right: the switch raises wherever there are more or fewer keys than queries."""

    def refuse(self, length, keys):
        """Refuse unequal lengths."""
        if length != keys:
            raise ValueError(f"got {keys} keys for {length} queries, but should be as many")

    def forward(self, query, key, value, is_causal=False):
        """Return (N, L, E)."""
        if not is_causal:
            return self.attended(query, key, value, None)
        length, keys = query.shape[1], key.shape[1]
        self.refuse(length, keys)
        future = torch.ones(length, keys, dtype=torch.bool).triu(1 + keys - length)
        return self.attended(query, key, value, future)


class CausalAtTheEnd(CausalAtEqualLengths):
    """Wrong: of more keys than queries the rule ends at the last key; an odd number raises."""

    def refuse(self, length, keys):
        """Refuse an odd number of more keys."""
        if length < keys and keys % 2:
            raise ValueError(f"got {keys} keys, but should be an even number")


class CausalAtTheEndOfFewer(CausalAtEqualLengths):
    """Wrong: of fewer keys than queries the rule ends at the last key; more keys raise."""

    def refuse(self, length, keys):
        """Refuse more keys than queries."""
        if length < keys:
            raise ValueError(f"got {keys} keys, but should be at most {length}")


class BySamples(Layer):
    """Right: goes through samples one by one, with a mask (L, S) or one of (N, L, S) for each."""

    def forward(self, query, key, value, attn_mask=None):
        """Return (N, L, E)."""
        rows = (each.split(1) for each in (query, key, value))
        return torch.cat([
            self.attended(q, k, v, self.of_sample(attn_mask, sample, len(query)))
            for sample, (q, k, v) in enumerate(zip(*rows, strict=True))
        ])  # fmt: skip

    def of_sample(self, attn_mask, sample, samples):
        """Return the mask of a sample."""
        return attn_mask if attn_mask is None or attn_mask.ndim == 2 else attn_mask[sample]


class BySamplesOfOthers(BySamples):
    """Wrong: a mask (N, L, S) is read from its last sample on."""

    def of_sample(self, attn_mask, sample, samples):
        """Return the mask of another sample."""
        return super().of_sample(attn_mask, samples - 1 - sample, samples)


class BySamplesHeadsFirst(BySamples):
    """Wrong: (N, L, S) is read right, but (N * H, L, S) with the heads before the samples."""

    def of_sample(self, attn_mask, sample, samples):
        """Return the mask of a sample."""
        if attn_mask is None or len(attn_mask) != self.num_heads * samples or attn_mask.ndim == 2:
            return super().of_sample(attn_mask, sample, samples)
        return attn_mask.unflatten(0, (self.num_heads, samples))[:, sample]
