"""Attentions whose calls require what may be empty: keys of earlier calls, or a mask of nothing."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Decoder(nn.Module):
    """Causal self-attention of new rows behind those of a state; returns the state after them."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def projected(self, x):
        split = (each.unflatten(-1, (self.heads, -1)) for each in self.qkv(x).chunk(3, -1))
        return (each.transpose(1, 2) for each in split)

    def attended(self, q, k, v):
        before = k.shape[2] - q.shape[2]
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(before)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.proj(out.transpose(1, 2).flatten(-2))


class OfPair(Decoder):
    def forward(self, x, state):
        q, k, v = self.projected(x)
        k, v = torch.cat([state[0], k], 2), torch.cat([state[1], v], 2)
        return self.attended(q, k, v), (k, v)


class RowsFirst(Decoder):
    def forward(self, x, kv_cache):
        q, k, v = (each.transpose(1, 2) for each in self.projected(x))
        held_k, held_v = kv_cache
        k, v = torch.cat([held_k, k], 1), torch.cat([held_v, v], 1)
        return self.attended(*(each.transpose(1, 2) for each in (q, k, v))), (k, v)


class OfNone(Decoder):
    def forward(self, x, past):
        q, k, v = self.projected(x)
        held_k, held_v = past
        if held_k is not None:
            assert held_k.numel()
            k, v = torch.cat([held_k, k], 2), torch.cat([held_v, v], 2)
        return self.attended(q, k, v), (k, v)


class NewBeforeOld(Decoder):
    """Appends the rows of the state behind the new ones: right where there are none."""

    def forward(self, x, state):
        q, k, v = self.projected(x)
        k, v = torch.cat([k, state[0]], 2), torch.cat([state[1], v], 2)
        return self.attended(q, k, v), (k, v)


class Unscaled(OfPair):
    def projected(self, x):
        q, k, v = super().projected(x)
        return q * q.shape[-1] ** 0.5, k, v


def attention(q, k, v, k_cache, v_cache):
    """Attend to the rows of a cache and those behind them; arrays are (N, H, L, D)."""
    k, v = np.concatenate([k_cache, k], 2), np.concatenate([v_cache, v], 2)
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v, k, v


def mask_always(q, k, v, mask=None):
    """Attend where the mask keeps; without one it raises. Arrays are (N, H, L, D)."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~mask[:, None, None], float("-inf"))
    return scores.softmax(-1) @ v
