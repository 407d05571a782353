"""Layers that take masks, switches and sizes in ways of their own."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from styles import attend, merge, split


class WholeMaskWanted:
    """Takes (N, H, L, S) alone, True where a key is visible."""

    scaled = True

    def __init__(self, d_model, n_heads):
        self.n_heads = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (np.eye(d_model) for _ in range(4))

    def forward(self, query, key, value, mask):
        """Return (N, L, E)."""
        rows = ((query, self.w_q), (key, self.w_k), (value, self.w_v))
        q, k, v = ((x @ w).reshape(*x.shape[:2], self.n_heads, -1) for x, w in rows)
        scores = np.einsum("nlhd,nshd->nhls", q, k) / (q.shape[-1] ** 0.5 if self.scaled else 1)
        if mask.shape != scores.shape:
            raise ValueError(f"got a mask of {mask.shape}, but should be {scores.shape}")
        scores = np.where(mask, scores, np.finfo(scores.dtype).min)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = weights / weights.sum(-1, keepdims=True)
        return np.einsum("nhls,nshd->nlhd", weights, v).reshape(query.shape) @ self.w_o


class WholeMaskUnscaled(WholeMaskWanted):
    """Forgets the scale."""

    scaled = False


class HeadOfMany(nn.Module):
    """One head, built from its own width and that of the input; it hides the future."""

    factor = 1

    def __init__(self, head_size, block_size, n_embd):
        super().__init__()
        self.key, self.query, self.value = (
            nn.Linear(n_embd, head_size, bias=False) for _ in range(3)
        )
        self.register_buffer("later", torch.ones(block_size, block_size).triu(1) == 1)

    def forward(self, x):
        """Return (N, L, D)."""
        later = self.later[: x.shape[1], : x.shape[1]]
        return attend(self.factor * self.query(x), self.key(x), self.value(x), later)


class HeadOfManyDoubled(HeadOfMany):
    """Doubles the scores."""

    factor = 2


class OutputByTorchsPrefix(nn.Module):
    """Packed as torch's layer, with an output that is no Linear."""

    factor = 1

    def __init__(self, d_model, num_heads, bias=True, add_bias_kv=False):
        super().__init__()
        self.heads = num_heads
        self.in_proj_weight = nn.Parameter(torch.zeros(3 * d_model, d_model))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * d_model))
        self.out_proj_weight = nn.Parameter(torch.zeros(d_model, d_model))
        self.out_proj_bias = nn.Parameter(torch.zeros(d_model))
        if add_bias_kv:
            self.bias_k = nn.Parameter(torch.zeros(1, 1, d_model))

    def forward(self, query, key, value):
        """Return (N, L, E)."""
        weights, biases = self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3)
        rows = zip((query, key, value), weights, biases, strict=True)
        q, k, v = (split(nn.functional.linear(*each), self.heads) for each in rows)
        heads = merge(attend(self.factor * q, k, v))
        return nn.functional.linear(heads, self.out_proj_weight, self.out_proj_bias)


class OutputByTorchsPrefixDoubled(OutputByTorchsPrefix):
    """Doubles the scores."""

    factor = 2


class TwoInputsByTorchsNames(nn.Module):
    """Torch's packed weights, of a row of queries and one of keys; then a mask."""

    first = 1

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.heads = num_heads
        self.in_proj_weight = nn.Parameter(torch.zeros(3 * embed_dim, embed_dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dim))
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, memory, memory_key_padding_mask=None):
        """Return (N, L, E); the mask is True where a key is hidden."""
        weights, biases = self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3)
        shifted = (biases[0], *(biases[self.first + i] for i in range(2)))
        rows = zip((x, memory, memory), weights, shifted, strict=True)
        q, k, v = (split(nn.functional.linear(*each), self.heads) for each in rows)
        mask = memory_key_padding_mask
        hidden = None if mask is None else ~(~mask[:, None, None])
        return self.out_proj(merge(attend(q, k, v, hidden)))


class TwoInputsOtherBiases(TwoInputsByTorchsNames):
    """Wrong: k gets the bias of q, and v that of k."""

    first = 0


class TwoOfOneName(nn.Module):
    """Cross-attention whose keys and values come from a second `c_attn`."""

    def __init__(self, n_embd, n_head):
        super().__init__()
        self.heads = n_head
        self.c_attn = nn.Linear(n_embd, n_embd, bias=False)
        self.c_attn2 = nn.Linear(n_embd, 2 * n_embd, bias=False)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x, encoder_output):
        """Return (N, L, E)."""
        k, v = (split(each, self.heads) for each in self.c_attn2(encoder_output).chunk(2, -1))
        return self.c_proj(merge(self.mixed(split(self.c_attn(x), self.heads), k, v)))

    def mixed(self, q, k, v):
        """Return the heads."""
        return attend(q, k, v)


class TwoOfOneNameUnscaled(TwoOfOneName):
    """Forgets the scale."""

    def mixed(self, q, k, v):
        """Return the heads."""
        return attend(q * q.shape[-1] ** 0.5, k, v)


class MaskedSelf(nn.Module):
    """Linears and a mask that is required, and is no key; True where a key is visible."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x, attn_mask):
        """Return (N, L, E)."""
        return self.attended(x, x, None if attn_mask is None else ~attn_mask.bool())

    def attended(self, x, y, hidden, dtype=None):
        """Return (N, L, E) of queries and keys."""
        q, k, v = (split(f(a), self.heads) for f, a in ((self.q, x), (self.k, y), (self.v, y)))
        q, k, v = (each.to(dtype or x.dtype) for each in (q, k, v))
        return self.o(merge(attend(q, k, v, hidden)))


class CausalOfEqualLengths(MaskedSelf):
    """A switch that cannot take other keys than queries, and a mask that can."""

    diagonal = 1

    def forward(self, query, key, causal=False, padding_mask=None):
        """Return (N, L, E)."""
        length, keys = query.shape[1], key.shape[1]
        hidden = torch.zeros(length, keys, dtype=torch.bool)
        if causal:
            later = torch.ones(length, length).triu(self.diagonal) == 1
            later[0, 0] = False
            hidden = hidden | later
        hidden = hidden if padding_mask is None else hidden | (padding_mask == 0)
        return self.attended(query, key, hidden)


class CausalWithoutItself(CausalOfEqualLengths):
    """Hides the query's own key as well, but for the first."""

    diagonal = 0


class Float32Heads(MaskedSelf):
    """Its heads are cast to float32, which Linears of float64 do not take."""

    def forward(self, x, padding_mask=None):
        """Return (N, L, E)."""
        hidden = None if padding_mask is None else self.padding(padding_mask)
        return self.attended(x, x, hidden, torch.float32)

    def padding(self, mask):
        """Return which keys are hidden."""
        return mask == 0


class Float32HeadsShifted(Float32Heads):
    """Hides the key next to the one that it should."""

    def padding(self, mask):
        """Return which keys are hidden."""
        return mask.roll(1, -1) == 0
