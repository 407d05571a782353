"""Wrong on purpose, as torch modules with views and permutes: MHA(embed_dim, num_heads, ...)."""

from __future__ import annotations

import math

import torch
from torch import nn

EXPECTED = {
    "KeysAndQueriesSwapped": "qkv-order-kqv",
    "InterleavedPacking": "qkv-interleaved-heads",
    "ViewWithoutPermute": "split-no-transpose",
    "HeadsOfWidth": "heads-interleaved",
    "ScaleOfTheLayer": "scale-dmodel",
    "WrongDim": "softmax-query-axis",
    "KeepMask": "bool-inverted",
    "QueryPadding": "kpm-both-axes",
    "Shifted": "causal-loose",
    "Bfloat16Scores": "low-precision-softmax",
    "FirstHeadWeights": "weights-wrong-head",
}


class MHA(nn.Module):
    """A right layer; the methods are where the others go wrong."""

    def __init__(self, embed_dim, num_heads, bias=True, batch_first=True):
        super().__init__()
        self.embed_dim, self.heads, self.dim = embed_dim, num_heads, embed_dim // num_heads
        self.batch_first = batch_first
        self.in_proj_weight = nn.Parameter(torch.zeros(3 * embed_dim, embed_dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dim)) if bias else None
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def packed(self, query, key, value):
        parts = []
        for i, rows in enumerate((query, key, value)):
            weight = self.in_proj_weight.chunk(3)[i]
            bias = None if self.in_proj_bias is None else self.in_proj_bias.chunk(3)[i]
            parts.append(nn.functional.linear(rows, weight, bias))
        return parts

    def unfold(self, x):
        return x.unflatten(2, (self.heads, self.dim)).permute(0, 2, 1, 3)

    def fold(self, x):
        return x.permute(0, 2, 1, 3).flatten(2)

    def factor(self):
        return math.sqrt(self.dim)

    def probabilities(self, scores):
        return scores.softmax(dim=3)

    def hide(self, scores, mask, fill=-math.inf):
        if mask.dtype == torch.bool:
            return scores.masked_fill(mask, fill)
        return scores + mask

    def masks(self, scores, key_padding_mask, attn_mask):
        if attn_mask is not None:
            if attn_mask.dim() == 3:
                attn_mask = attn_mask.unflatten(0, (scores.shape[0], self.heads))
            scores = self.hide(scores, attn_mask)
        if key_padding_mask is not None:
            scores = self.hide(scores, key_padding_mask[:, None, None, :])
        return scores

    def given(self, weights, average):
        return weights.mean(dim=1) if average else weights

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
                average_attn_weights=True, is_causal=False):  # fmt: skip
        if query.dim() == 2:
            batch = 0 if self.batch_first else 1
            rows = (x.unsqueeze(batch) for x in (query, key, value))
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask[None]
            output, weights = MHA.forward(self, *rows, key_padding_mask, need_weights, attn_mask,
                                          average_attn_weights)  # fmt: skip
            return output.squeeze(batch), None if weights is None else weights[0]
        if not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = (self.unfold(x) for x in self.packed(query, key, value))
        scores = self.masks(q @ k.mT / self.factor(), key_padding_mask, attn_mask)
        weights = self.probabilities(scores)
        mixed = self.out_proj(self.fold(weights @ v))
        output = mixed if self.batch_first else mixed.transpose(0, 1)
        return output, self.given(weights, average_attn_weights) if need_weights else None


class KeysAndQueriesSwapped(MHA):
    def packed(self, query, key, value):
        order = [1, 0, 2]
        names = [self.in_proj_weight.chunk(3)[i] for i in order]
        biases = 3 * [None] if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        biases = [biases[i] for i in order]
        linear = nn.functional.linear
        return [linear(x, w, b) for x, w, b in zip((query, key, value), names, biases)]


class InterleavedPacking(MHA):
    def packed(self, query, key, value):
        weight = self.in_proj_weight.unflatten(0, (self.heads, 3, self.dim)).transpose(0, 1)
        parts = [x @ w.flatten(0, 1).T for x, w in zip((query, key, value), weight)]
        if self.in_proj_bias is not None:
            bias = self.in_proj_bias.unflatten(0, (self.heads, 3, self.dim)).transpose(0, 1)
            parts = [x + b.flatten() for x, b in zip(parts, bias)]
        return parts


class ViewWithoutPermute(MHA):
    def unfold(self, x):
        return x.contiguous().view(x.shape[0], self.heads, x.shape[1], self.dim)


class HeadsOfWidth(MHA):
    def unfold(self, x):
        return x.unflatten(2, (self.dim, self.heads)).permute(0, 3, 1, 2)

    def fold(self, x):
        return x.permute(0, 2, 3, 1).flatten(2)


class ScaleOfTheLayer(MHA):
    def factor(self):
        return math.sqrt(self.embed_dim)


class WrongDim(MHA):
    def probabilities(self, scores):
        return scores.softmax(dim=2)


class KeepMask(MHA):
    def hide(self, scores, mask, fill=-math.inf):
        return super().hide(scores, ~mask if mask.dtype == torch.bool else mask, fill)


class QueryPadding(MHA):
    def masks(self, scores, key_padding_mask, attn_mask):
        scores = super().masks(scores, key_padding_mask, attn_mask)
        if key_padding_mask is not None and scores.shape[2] == scores.shape[3]:
            scores = self.hide(scores, key_padding_mask[:, None, :, None])
        return scores


class Shifted(MHA):
    def forward(self, query, key, value, attn_mask=None, is_causal=False, **others):
        if is_causal:
            time = 1 if self.batch_first else 0
            rows, keys = (x.shape[time if x.dim() == 3 else 0] for x in (query, key))
            attn_mask = torch.ones(rows, keys, dtype=torch.bool).triu(2)
        return super().forward(query, key, value, attn_mask=attn_mask, **others)


class Bfloat16Scores(MHA):
    def probabilities(self, scores):
        return scores.bfloat16().softmax(dim=3).to(scores.dtype)


class FirstHeadWeights(MHA):
    def given(self, weights, average):
        return weights[:, 0] if average else weights
