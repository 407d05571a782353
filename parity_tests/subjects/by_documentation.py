"""Attentions that are right or wrong by what their names and their documentation say."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


def split(rows, heads):
    """Return (N, H, L, D) of (N, L, E)."""
    return rows.unflatten(-1, (heads, -1)).transpose(1, 2)


def attend(q, k, v, hidden=None):
    """Return (N, L, E) of heads; True hides."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = scores if hidden is None else scores.masked_fill(hidden, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Windowed(nn.Module):
    """Row i attends to the `window` most recent positions, itself included: i - window < j <= i."""

    more = 1

    def __init__(self, embed_dim, num_heads, window):
        super().__init__()
        self.heads, self.window = num_heads, window
        self.qkv, self.out = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        """Return (N, L, E)."""
        shown = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
        shown = shown.tril().triu(self.more - self.window)
        q, k, v = (split(rows, self.heads) for rows in self.qkv(x).chunk(3, dim=-1))
        return self.out(attend(q, k, v, ~shown))


class WindowedByOneMore(Windowed):
    """Wrong: a key more. Row i attends to every j with i - window < j <= i."""

    more = 0


class WindowedByOneMoreUnsaid(Windowed):
    """Right by what is said: a local causal attention."""

    more = 0


class TorchsNames(nn.Module):
    """Right: a state of torch.nn.MultiheadAttention is loaded as it is."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.heads = num_heads
        self.in_proj_weight = nn.Parameter(torch.randn(3 * embed_dim, embed_dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dim))
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def unpacked(self, rows):
        """Return q, k and v, (N, H, L, D)."""
        return (split(each, self.heads) for each in rows.chunk(3, dim=-1))

    def forward(self, x):
        """Return (N, L, E)."""
        rows = nn.functional.linear(x, self.in_proj_weight, self.in_proj_bias)
        return self.out_proj(attend(*self.unpacked(rows)))


class TorchsNamesByHead(TorchsNames):
    """Wrong: each head has its own rows of q, k and v, one behind the other."""

    def unpacked(self, rows):
        """Return q, k and v, (N, H, L, D)."""
        return split(rows, self.heads).chunk(3, dim=-1)


def masks_of_two_shapes(q, k, v, num_heads, attn_mask=None):
    """Right, of rows (N, L, E) that are projected.

    attn_mask: bool (True = blocked), (L, S) or (N * num_heads, L, S)
    """
    if attn_mask is not None and attn_mask.dim() == 3:
        attn_mask = attn_mask.unflatten(0, (-1, num_heads))
    return attend(*(split(rows, num_heads) for rows in (q, k, v)), attn_mask)


def masks_of_equal_lengths(q, k, v, num_heads, attn_mask=None):
    """Wrong: masks of heads are refused where L and S differ.

    attn_mask: bool (True = blocked), (L, S) or (N * num_heads, L, S)
    """
    if attn_mask is not None and attn_mask.dim() != 2:
        if attn_mask.shape[1:] != (q.shape[1], q.shape[1]):
            raise RuntimeError(f"got an attn_mask of shape {tuple(attn_mask.shape)}")
        attn_mask = attn_mask.unflatten(0, (-1, num_heads))
    return attend(*(split(rows, num_heads) for rows in (q, k, v)), attn_mask)


def masks_of_equal_lengths_as_said(q, k, v, num_heads, attn_mask=None):
    """Right by what is said: as many keys as queries in masks of heads.

    attn_mask: bool (True = blocked), (L, S) or (N * num_heads, L, L)
    """
    return masks_of_equal_lengths(q, k, v, num_heads, attn_mask)


def named_as_jaxs(q, k, v, bias=None, mask=None):
    """Right, of q (N, L, H, D), k and v (N, S, H, D).

    bias: (H, L, S) or (N, H, L, S), added to the scaled scores
    mask: (N, S) bool, True = real key, at least one for each sample
    """
    q, k, v = (rows.transpose(1, 2) for rows in (q, k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = scores if bias is None else scores + bias
    scores = scores if mask is None else scores.masked_fill(~mask[:, None, None], -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2)


def heads_before_inputs(w, x, context=None):
    """Right, of x (N, L, E) and a context (N, S, E), x if it is left out.

    Weights by head and (out, in): `wq`, `wk`, `wv` (H, D, E), `wo` (E, H, D), `bq` (H, D).
    """
    y = x if context is None else context
    q = np.einsum("zti,hci->zhtc", x, w["wq"]) + w["bq"][:, None]
    k = np.einsum("zti,hci->zhtc", y, w["wk"]) + w["bk"][:, None]
    v = np.einsum("zti,hci->zhtc", y, w["wv"]) + w["bv"][:, None]
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("zhtc,ohc->zto", p / p.sum(-1, keepdims=True) @ v, w["wo"]) + w["bo"]


def by_whole_keys(params, query, memory=None, num_heads=1):
    """Right, of query (N, L, E) and memory (N, S, E), the query if it is left out.

    params: "q.weight", "k.weight", "v.weight", "o.weight", each (out, in), and their biases.
    """
    memory = query if memory is None else memory
    given = {name: array.to(query.dtype) for name, array in params.items()}

    def rows(name, x):
        return nn.functional.linear(x, given[f"{name}.weight"], given.get(f"{name}.bias"))

    width = given["q.weight"].shape[0]
    q, k, v = (split(rows(n, x), num_heads) for n, x in (("q", query), ("k", memory), ("v", memory)))
    merged = attend(q, k, v)
    assert merged.shape[-1] == width == given["o.weight"].shape[1]
    return merged @ given["o.weight"].T + given["o.bias"]
