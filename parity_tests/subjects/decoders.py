"""Layers whose configuration says by `is_decoder` whether they hide the future, or nothing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    hidden_size: int = 32
    num_attention_heads: int = 4
    is_decoder: bool = False


class Decoder(nn.Module):
    """Right: a decoder hides the future.

    attention_mask: (N, S), 1 for tokens, 0 for padding.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dense = nn.Linear(width, width)

    def split(self, rows):
        return rows.unflatten(-1, (self.config.num_attention_heads, -1)).transpose(1, 2)

    def joined(self, hidden, ahead):
        return hidden | ahead

    def forward(self, hidden_states, attention_mask=None):
        q, k, v = (self.split(f(hidden_states)) for f in (self.query, self.key, self.value))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        hidden = torch.zeros(1, 1, 1, scores.shape[-1], dtype=torch.bool)
        if attention_mask is not None:
            hidden = attention_mask[:, None, None] == 0
        if self.config.is_decoder:
            ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            hidden = ahead if attention_mask is None else self.joined(hidden, ahead)
        scores = scores.masked_fill(hidden, float("-inf"))
        return self.dense((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class DecoderOfBoth(Decoder):
    """Wrong: a decoder hides a key where the mask and the rule hide it alone."""

    def joined(self, hidden, ahead):
        return hidden & ahead


class Encoder(Decoder):
    """Right: `is_decoder` says nothing of keys."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.keeps_rows = config.is_decoder
        self.config = Config(config.hidden_size, config.num_attention_heads)
