"""Multi-query attention whose one head of keys is taken by its axis, or by all axes of one."""

import torch
from torch import nn


class MultiQuery(nn.Module):
    """Right: the axis of the one head is named."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, self.head_dim)
        self.v_proj = nn.Linear(embed_dim, self.head_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def of_one_head(self, rows):
        return rows.unflatten(-1, (1, self.head_dim)).squeeze(2)

    def forward(self, query, key, value):
        q = self.q_proj(query).unflatten(-1, (self.num_heads, -1)) * self.head_dim**-0.5
        k, v = self.of_one_head(self.k_proj(key)), self.of_one_head(self.v_proj(value))
        weights = torch.einsum("nlhd,nsd->nhls", q, k).softmax(-1)
        return self.out_proj(torch.einsum("nhls,nsd->nlhd", weights, v).flatten(2))


class Squeezed(MultiQuery):
    """Wrong: raises with one sample, and with one key."""

    def of_one_head(self, rows):
        return rows.unflatten(-1, (1, self.head_dim)).squeeze()


class Refusing(MultiQuery):
    """Right: it refuses one key, which is not asked."""

    def of_one_head(self, rows):
        if rows.shape[1] == 1:
            raise ValueError("one key needs no attention")
        return super().of_one_head(rows)


class RefusingByAnother(MultiQuery):
    """Right: the exception is another, and raised on purpose."""

    def of_one_head(self, rows):
        if rows.shape[1] == 1:
            raise RuntimeError("one key needs no attention")
        return super().of_one_head(rows)


class Unpacked(MultiQuery):
    """Wrong: with one key there are two axes to unpack, which is a ValueError."""

    def of_one_head(self, rows):
        samples, keys, width = rows.squeeze(1).shape
        return rows.reshape(samples, keys, width)
