"""Attentions whose documentation says in Chinese what a mask hides, or what it broadcasts to."""

import torch
from torch import nn


def _attend(q, k, v, hidden):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = scores if hidden is None else scores.masked_fill(hidden, float("-inf"))
    return scores.softmax(-1) @ v


def hides(q, k, v, mask=None):
    """缩放点积注意力

    参数:
        q, k, v: 张量 (N, H, L, D)
        mask: 注意力掩码 (..., L, S)
              mask=True 的位置会被屏蔽 (设为 -inf)
    """
    return _attend(q, k, v, mask)


def hides_inverted(q, k, v, mask=None):
    """缩放点积注意力

    参数:
        q, k, v: 张量 (N, H, L, D)
        mask: 注意力掩码 (..., L, S)
              mask=True 的位置会被 mask 掉 (设为 -inf)
    """
    return _attend(q, k, v, None if mask is None else ~mask)


def keeps(q, k, v, mask=None):
    """缩放点积注意力

    参数:
        q, k, v: 张量 (N, H, L, D)
        mask: 掩码 (N, 1, 1, S)，1 表示有效位置，0 表示填充位置
    """
    return _attend(q, k, v, None if mask is None else ~mask.bool())


def keeps_inverted(q, k, v, mask=None):
    """缩放点积注意力

    参数:
        q, k, v: 张量 (N, H, L, D)
        mask: 掩码 (N, 1, 1, S)，1 表示有效位置，0 表示填充位置
    """
    return _attend(q, k, v, None if mask is None else mask.bool())


class Broadcasts(nn.Module):
    """Right: a mask of each sample reaches all of its heads."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def of_heads(self, mask):
        return mask[:, None] if mask.ndim == 3 else mask

    def forward(self, x, mask=None):
        """Attend.

        Args:
            x: (batch_size, seq_len, d_model)
            mask: applied to attention scores, True hides; should be broadcastable to (batch_size, seq_len, seq_len).

        """
        q, k, v = (
            w(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        hidden = None if mask is None else self.of_heads(mask)
        return self.w_o(_attend(q, k, v, hidden).transpose(1, 2).flatten(2))


class BroadcastsToHeads(Broadcasts):
    """Wrong: the mask of sample n reaches head n, where there are as many."""

    def of_heads(self, mask):
        return mask


def of_any_leading(q, k, v, mask=None):
    """Wrong: of a mask (L, S) the rows meet the samples.

    mask: boolean, True hides, broadcastable to (..., query_len, key_len)
    """
    while mask is not None and mask.ndim < 4:
        mask = mask.unsqueeze(-2)
    return _attend(q, k, v, mask)
