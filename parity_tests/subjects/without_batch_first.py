"""Layers like torch's whose constructor has no ``batch_first``: along which axis they attend."""

from __future__ import annotations

from torch import nn


class SequenceFirst(nn.Module):
    """Right: (L, N, E), torch's default."""

    def __init__(self, embed_dim, num_heads, dtype=None):
        super().__init__()
        self.inner = [nn.MultiheadAttention(embed_dim, num_heads, batch_first=False, dtype=dtype)]

    def state_dict(self):
        return self.inner[0].state_dict()

    def load_state_dict(self, state):
        self.inner[0].load_state_dict(state)

    def forward(self, query, key, value, attn_mask=None, need_weights=True):
        return self.inner[0](query, key, value, attn_mask=attn_mask, need_weights=need_weights)


class BatchFirst(SequenceFirst):
    """Right too: (N, L, E)."""

    def __init__(self, embed_dim, num_heads, dtype=None):
        super().__init__(embed_dim, num_heads, dtype)
        self.inner = [nn.MultiheadAttention(embed_dim, num_heads, batch_first=True, dtype=dtype)]


class BothAxes(SequenceFirst):
    """Wrong: tokens of all samples are mixed."""

    def forward(self, query, key, value, attn_mask=None, need_weights=True):
        rows, samples, width = query.shape
        flat = (x.reshape(-1, 1, width) for x in (query, key, value))
        output, _ = self.inner[0](*flat, need_weights=False)
        return output.reshape(rows, samples, width), None


class NoBatchOfTwo(SequenceFirst):
    """Right, but it takes one sample alone."""

    def forward(self, query, key, value, attn_mask=None, need_weights=True):
        if query.dim() == 3 and query.shape[1] > 1:
            raise ValueError("one sample, please")
        return super().forward(query, key, value, attn_mask, need_weights)


class BiasTwice(nn.Module):
    """Wrong: (L, N, E) with Linears, and the output's bias is added again."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, value):
        length, samples, width = query.shape
        q, k, v = (
            linear(x).reshape(len(x), samples * self.num_heads, -1).transpose(0, 1)
            for linear, x in (
                (self.q_proj, query),
                (self.k_proj, key),
                (self.v_proj, value),
            )
        )
        weights = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(dim=-1)
        heads = (weights @ v).transpose(0, 1).reshape(length, samples, width)
        return self.out_proj(heads) + self.out_proj.bias
