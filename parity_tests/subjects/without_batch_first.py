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


class ValueOfKeys(BatchFirst):
    """Wrong: where query is key, the values are those of key, whatever is passed."""

    def forward(self, query, key, value, attn_mask=None, need_weights=True):
        value = key if query is key else value
        return super().forward(query, key, value, attn_mask, need_weights)


class NoBatchOfTwo(SequenceFirst):
    """Right, but it takes one sample alone."""

    def forward(self, query, key, value, attn_mask=None, need_weights=True):
        if query.dim() == 3 and query.shape[1] > 1:
            raise ValueError("one sample, please")
        return super().forward(query, key, value, attn_mask, need_weights)
