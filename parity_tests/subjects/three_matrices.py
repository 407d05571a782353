"""Layers with torch's names whose weights of q, k and v are always three matrices."""

import torch
from torch import nn

__all__ = ["OfTheKey", "ThreeMatrices"]


class ThreeMatrices(nn.Module):
    """Right: (L, N, E), or (N, L, E) with batch_first=True."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True, kdim=None, vdim=None,
                 batch_first=False):  # fmt: skip
        super().__init__()
        self.num_heads, self.batch_first, self.dropout = num_heads, batch_first, dropout
        widths = {"q": embed_dim, "k": kdim or embed_dim, "v": vdim or embed_dim}
        for part, width in widths.items():
            self.register_parameter(
                f"{part}_proj_weight", nn.Parameter(torch.randn(embed_dim, width) / width**0.5)
            )
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dim)) if bias else None
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def of_values(self, value, projected_key):
        """Return projected values."""
        del projected_key
        return value @ self.v_proj_weight.mT

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True,
                attn_mask=None):  # fmt: skip
        """Return the output, and the mean of weights over heads."""
        if not self.batch_first:
            query, key, value = (rows.transpose(0, 1) for rows in (query, key, value))
        samples, length, _ = query.shape
        k = key @ self.k_proj_weight.mT
        rows = [query @ self.q_proj_weight.mT, k, self.of_values(value, k)]
        if self.in_proj_bias is not None:
            pairs = zip(rows, self.in_proj_bias.chunk(3), strict=True)
            rows = [each + bias for each, bias in pairs]
        q, k, v = (each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for each in rows)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if attn_mask is not None:
            mask = attn_mask if attn_mask.ndim == 2 else attn_mask.unflatten(0, (samples, -1))
            hidden = mask.dtype == torch.bool
            scores = scores.masked_fill(mask, float("-inf")) if hidden else scores + mask
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask[:, None, None], float("-inf"))
        weights = nn.functional.dropout(scores.softmax(-1), self.dropout, self.training)
        output = self.out_proj((weights @ v).transpose(1, 2).reshape(samples, length, -1))
        output = output if self.batch_first else output.transpose(0, 1)
        return output, weights.mean(1) if need_weights else None


class OfTheKey(ThreeMatrices):
    """Wrong: the values are made of what the keys are."""

    def of_values(self, value, projected_key):
        """Return projected keys."""
        return super().of_values(value, projected_key) * 0 + projected_key
