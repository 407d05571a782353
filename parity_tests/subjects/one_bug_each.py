"""Layers and a function with one bug each, which shows with certain features; one has two."""

import torch
from torch import nn


def causal_off_by_one(query, key, value, attn_mask=None, is_causal=False):
    rows, keys = query.shape[-2], key.shape[-2]
    bias = torch.zeros(rows, keys, dtype=query.dtype)
    if is_causal:
        bias.masked_fill_(~torch.ones(rows, keys, dtype=torch.bool).tril(1), float("-inf"))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        bias = bias.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        bias = bias + attn_mask
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    return torch.softmax(scores + bias, -1) @ value


class Attention(nn.Module):
    def __init__(self, embed_dim, num_heads, bias=True, batch_first=True):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def forward(self, query, key, value, key_padding_mask=None, is_causal=False):
        q = self.split(self.q_proj(query))
        k = self.split(self.k_proj(key))
        v = self.split(self.v_proj(value))
        hidden = self.hidden(query.shape[1], key.shape[1], key_padding_mask, is_causal)
        scores = (q @ k.transpose(-2, -1) * self.scale()).masked_fill(hidden, float("-inf"))
        out = (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)
        return self.answer(self.out_proj(out))

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def scale(self):
        return self.head_dim**-0.5

    def hidden(self, rows, keys, key_padding_mask, is_causal):
        hidden = torch.zeros(1, 1, rows, keys, dtype=torch.bool)
        if is_causal:
            hidden = hidden | ~torch.ones(rows, keys, dtype=torch.bool).tril()
        if key_padding_mask is not None:
            hidden = hidden | key_padding_mask[:, None, None, :]
        return hidden

    def answer(self, out):
        return out


class WholeScale(Attention):
    def scale(self):
        return (self.num_heads * self.head_dim) ** -0.5


class OddLengths(Attention):
    def answer(self, out):
        if out.shape[1] > 5 and out.shape[1] % 2:
            raise RuntimeError("an odd number of queries")
        return out


class Float16Only(Attention):
    def answer(self, out):
        return out * 1.01 if out.dtype == torch.float16 else out


class CausalForgetsPadding(Attention):
    def hidden(self, rows, keys, key_padding_mask, is_causal):
        return super().hidden(rows, keys, None if is_causal else key_padding_mask, is_causal)


class CausalAndFloat16(Attention):
    def answer(self, out):
        return out * 1.5 if out.dtype == torch.float16 else out

    def hidden(self, rows, keys, key_padding_mask, is_causal):
        hidden = super().hidden(rows, keys, key_padding_mask, is_causal=False)
        if is_causal:
            hidden = hidden | ~torch.ones(rows, keys, dtype=torch.bool).tril(1)
        return hidden
