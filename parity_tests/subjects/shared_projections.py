"""Wrong on purpose, but for ``own_weights``: two projections have the weights of one."""

from __future__ import annotations

import numpy as np
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


def attend(q, k, v, num_heads):
    q, k, v = (np.stack(np.split(x, num_heads, axis=-1), axis=-3) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    exp = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = exp / exp.sum(axis=-1, keepdims=True) @ v
    return np.concatenate(list(np.moveaxis(heads, -3, 0)), axis=-1)


def own_weights(query, key, value, Wq, Wk, Wv, Wo, num_heads):
    """Right: each has its own."""
    return attend(query @ Wq.T, key @ Wk.T, value @ Wv.T, num_heads) @ Wo.T


def value_of_query(query, key, value, Wq, Wk, Wv, Wo, num_heads):
    """Project v with the weights of q, (out, in) as torch's."""
    return attend(query @ Wq.T, key @ Wk.T, value @ Wq.T, num_heads) @ Wo.T


def value_of_query_by_columns(query, key, value, Wq, Wk, Wv, Wo, num_heads):
    """Project v with the weights of q, (in, out)."""
    return attend(query @ Wq, key @ Wk, value @ Wq, num_heads) @ Wo


def value_of_key(x, Wq, bq, Wk, bk, Wv, bv, Wo, bo, num_heads):
    """Project v with the weights and bias of k."""
    return attend(x @ Wq + bq, x @ Wk + bk, x @ Wk + bk, num_heads) @ Wo + bo


def query_of_key(x, Wq, Wk, Wv, Wo, num_heads):
    """Project q with the weights of k."""
    return attend(x @ Wk, x @ Wk, x @ Wv, num_heads) @ Wo


class KeyOfQuery(nn.Module):
    """A layer that calls the Linear of q twice."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, query, key, value):
        """Return (N, L, E)."""
        held = ((self.q_proj, query), (self.q_proj, key), (self.v_proj, value))
        q, k, v = (f(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for f, x in held)
        out = scaled_dot_product_attention(q, k, v)
        return self.out_proj(out.transpose(1, 2).flatten(2))


class OneOfFour(nn.Module):
    """Four names of one Linear, in a list that multiplies it."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.linears = nn.ModuleList([nn.Linear(dim, dim)] * 4)

    def forward(self, q, k, v):
        """Return (N, L, E)."""
        q, k, v = (
            f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for f, x in zip(self.linears, (q, k, v), strict=False)
        )
        return self.linears[-1](scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
