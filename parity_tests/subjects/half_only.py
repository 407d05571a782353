"""Layers for 16 bits alone, each wrong by less than 256 roundings of bfloat16 (twice a number)."""

import torch
from torch import nn


class Attention(nn.Module):
    """Right: softmax(q k^T / sqrt(D)) v, in one of the dtypes of 16 bits."""

    dtypes = (torch.float16, torch.bfloat16)

    def __init__(self, embed_dim, num_heads, dropout=0.0):
        super().__init__()
        self.num_heads, self.dropout, self.calls = num_heads, dropout, 0
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        if x.dtype not in self.dtypes:
            raise TypeError(f"this kernel is for 16 bits, and not for {x.dtype}")
        q, k, v = (
            layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2).float()
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        p = self.drop(torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1))
        return self.scaled(self.out_proj((p @ v).to(x.dtype).transpose(1, 2).flatten(-2)))

    def drop(self, p):
        return nn.functional.dropout(p, self.dropout, self.training)

    def scaled(self, output):
        return output


class GrowsAfterTheFirstCall(Attention):
    """Each call but the first of an object is larger by nine tenths."""

    def scaled(self, output):
        self.calls += 1
        return output if self.calls == 1 else output * 1.9


class DropsAlways(Attention):
    """Drops weights in eval mode, too."""

    def drop(self, p):
        return nn.functional.dropout(p, self.dropout, training=True)
