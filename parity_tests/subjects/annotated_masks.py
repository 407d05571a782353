"""Masks that are annotated or documented as arrays of booleans, of integers, or of floats too."""

from __future__ import annotations

import torch
from torch import nn


class Layer(nn.Module):
    """Attention over queries, keys and values with a mask that hides or one that is added."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def attend(self, query, key, value, mask):
        """Return (N, L, E); True of a mask, broadcast to (N, H, L, S), keeps, floats are added."""
        q, k, v = (
            linear(rows).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear, rows in ((self.query, query), (self.key, key), (self.value, value))
        )
        out = nn.functional.scaled_dot_product_attention(q, k, v, mask)
        return self.proj(out.transpose(1, 2).flatten(2))


class Booleans(Layer):
    """Right. `&` of two masks takes no floats; True keeps."""

    def forward(
        self, q, k, v,
        kv_mask: torch.BoolTensor | None = None, attn_mask: torch.BoolTensor | None = None,
    ):  # fmt: skip
        """Return (N, L, E)."""
        kept = None if kv_mask is None else kv_mask[:, None].expand(-1, q.shape[1], -1)
        if attn_mask is not None:
            kept = attn_mask if kept is None else attn_mask & kept
        return self.attend(q, k, v, None if kept is None else kept[:, None])


class BooleansOfAnotherLibrary(Booleans):
    """Right. The annotation is of a library that names shapes in it."""

    def forward(
        self, q, k, v,
        kv_mask: 'Bool[Tensor, "N S"] | None' = None,  # noqa: F821  (of jaxtyping, as text)
        attn_mask: 'Bool[Tensor, "N L S"] | None' = None,  # noqa: F821  (the same)
    ):  # fmt: skip
        """Return (N, L, E)."""
        return super().forward(q, k, v, kv_mask, attn_mask)


class FloatsScaled(Layer):
    """Wrong. Floats, which the annotation has besides, are scaled as the scores are."""

    def forward(self, q, k, v, attn_mask: torch.BoolTensor | torch.FloatTensor | None = None):
        """Return (N, L, E); True keeps."""
        if attn_mask is not None and attn_mask.dtype != torch.bool:
            attn_mask = attn_mask / (q.shape[-1] // self.num_heads) ** 0.5
        return self.attend(q, k, v, attn_mask)


class FaintIntegers(Layer):
    """Wrong. Integers hide by a score of -1 alone."""

    def forward(self, q, k, v, attention_mask: torch.LongTensor | None = None):
        """Return (N, L, E); 1 keeps."""
        mask = None if attention_mask is None else attention_mask[:, None, None]
        if mask is not None and mask.dtype != torch.bool:
            mask = -1.0 * (1 - mask).to(q.dtype)
        return self.attend(q, k, v, mask)


def documented(query, key, value, attn_mask=None):
    """Right. Attention on (N, H, L, D).

    attn_mask: optional bool, broadcastable to (N, H, L, S), True = take part.
    """
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    if attn_mask is not None:
        scores = scores.masked_fill(torch.logical_not(attn_mask), float("-inf"))
    return scores.softmax(dim=-1) @ value


def undocumented(query, key, value, attn_mask=None):
    """Attention on (N, H, L, D), which takes floats of torch's mask for booleans."""
    return documented(query, key, value, attn_mask)
