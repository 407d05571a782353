"""Adapters: functions of one call in torch's terms that call the attention of a user."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import mha_parity


def softmax(scores):
    """Return weights; a row without a key gets zeros."""
    exp = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), np.finfo(scores.dtype).min))
    return exp / np.where(exp.any(-1, keepdims=True), exp.sum(-1, keepdims=True), 1)


def split(rows, heads):
    """Turn (N, S, E) into (N, H, S, D)."""
    return rows.reshape(*rows.shape[:2], heads, -1).swapaxes(1, 2)


@mha_parity.adapter
def everything(call: mha_parity.AttentionCall):
    """Weights, biases, all masks, a scale of the caller's, weights of each head."""
    q = split(call.query @ call.q_proj_weight.T + call.q_proj_bias, call.num_heads)
    k = split(call.key @ call.k_proj_weight.T + call.k_proj_bias, call.num_heads)
    v = split(call.value @ call.v_proj_weight.T + call.v_proj_bias, call.num_heads)
    weights = softmax(q @ k.swapaxes(-1, -2) * q.dtype.type(call.scale) + call.added("N H L S"))
    merged = (weights @ v).swapaxes(1, 2).reshape(call.query.shape)
    return merged @ call.out_proj_weight.T + call.out_proj_bias, weights


@mha_parity.adapter
def inverted(call: mha_parity.AttentionCall):
    """Wrong on purpose: what is hidden is kept."""
    q, k, v = (split(each, call.num_heads) for each in (call.query, call.key, call.value))
    scores = q @ k.swapaxes(-1, -2) * q.dtype.type(call.head_dim**-0.5)
    hidden = call.hidden("N 1 L S")
    weights = softmax(np.where(~hidden & hidden.any(), -np.inf, scores).astype(scores.dtype))
    return (weights @ v).swapaxes(1, 2).reshape(call.query.shape)


@mha_parity.adapter
def tensors(call: mha_parity.AttentionCall):
    """A function of tensors, so that all gradients are there."""
    weights = torch.cat((call.q_proj_weight, call.k_proj_weight, call.v_proj_weight))
    q, k, v = (
        rows.unflatten(-1, (call.num_heads, -1)).transpose(1, 2)
        for rows in nn.functional.linear(call.query, weights).chunk(3, -1)
    )
    mask = None if call.attn_mask is None else ~call.attn_mask
    mixed = nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=call.is_causal)
    return mixed.transpose(1, 2).flatten(2)


class Windowed(nn.Module):
    """A layer that no convention knows: its heads are given by their width, twice the name."""

    def __init__(self, plan):
        super().__init__()
        self.width, self.count = plan.split("x")
        size = int(self.width) * int(self.count)
        self.first, self.second = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, tokens):
        """Return (N, L, E); causal by itself."""
        parts = self.first(tokens).chunk(3, -1)
        q, k, v = (p.unflatten(-1, (int(self.count), -1)).transpose(1, 2) for p in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.second(mixed.transpose(1, 2).flatten(2))


@mha_parity.adapter
def windowed(call: mha_parity.AttentionCall):
    """Build the layer, load its weights, call it."""
    layer = Windowed(f"{call.head_dim}x{call.num_heads}").to(call.query.dtype).eval()
    rows = (call.q_proj_weight, call.k_proj_weight, call.v_proj_weight)
    biases = (call.q_proj_bias, call.k_proj_bias, call.v_proj_bias)
    layer.load_state_dict(
        {
            "first.weight": torch.cat(rows),
            "first.bias": torch.cat(biases),
            "second.weight": call.out_proj_weight,
            "second.bias": call.out_proj_bias,
        }
    )
    return layer(call.query)


@mha_parity.adapter
def grouped(call: mha_parity.AttentionCall):
    """Several query heads for each head of keys and values, whose weights are as narrow."""
    q = nn.functional.linear(call.query, call.q_proj_weight)
    k = nn.functional.linear(call.key, call.k_proj_weight, call.k_proj_bias)
    v = nn.functional.linear(call.key, call.v_proj_weight)
    mixed = grouped_heads(call, q, k, v)
    return nn.functional.linear(mixed, call.out_proj_weight)


@mha_parity.adapter
def grouped_rows(call: mha_parity.AttentionCall):
    """The same of keys and values that are projected already."""
    return grouped_heads(call, call.query, call.key, call.value)


@mha_parity.adapter
def grouped_otherwise(call: mha_parity.AttentionCall):
    """Wrong on purpose: a head of keys serves every second query head."""
    k, v = (nn.functional.linear(call.key, w) for w in (call.k_proj_weight, call.v_proj_weight))
    q = nn.functional.linear(call.query, call.q_proj_weight)
    return grouped_heads(call, q, k, v, neighbours=False)


def grouped_heads(call, q, k, v, neighbours=True):
    """Return attention of G heads of keys and values, (N, S, G D)."""
    q = q.unflatten(-1, (call.num_heads, -1)).transpose(1, 2)
    k, v = (each.unflatten(-1, (call.num_kv_heads, -1)).transpose(1, 2) for each in (k, v))
    share = call.num_heads // call.num_kv_heads
    if neighbours:
        k, v = (each.repeat_interleave(share, 1) for each in (k, v))
    else:
        k, v = (each.repeat(1, share, 1, 1) for each in (k, v))
    return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
