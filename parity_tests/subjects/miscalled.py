"""Attentions that a caller cannot know how to call, or that answer only some calls."""

from __future__ import annotations

import torch
from projected import f as right


def needs_a_keyword(Q, K, V, n_heads, *, cache):
    """Require a keyword that no convention passes."""
    return right(Q, K, V, n_heads)


def raises_on_many_rows(Q, K, V, n_heads):
    """Raise an exception of its own on more than nine rows."""
    if len(Q) > 9:
        raise ValueError("too many rows")
    return right(Q, K, V, n_heads)


class NeedsAConfiguration(torch.nn.Module):
    """Read what it is built from out of an object that no caller has."""

    def __init__(self, config, layer_idx):
        super().__init__()
        self.proj = torch.nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, query, key, value, key_padding_mask=None):
        """Never called."""
        return query


class WeightsElsewhere(torch.nn.Module):
    """Look like torch's layer, and keep no weight under torch's names."""

    def __init__(self, embed_dim, num_heads, bias=True, batch_first=True, dtype=None, device=None):
        super().__init__()
        self.mixing = torch.nn.Conv1d(embed_dim, embed_dim, 1)

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None, need_weights=True):
        """Return the query."""
        return query, None


def raises_always(Q, K, V, n_heads):
    """Raise whatever it gets."""
    raise RuntimeError("boom")


class CallsWhatIsGone(torch.nn.Module):
    """Attention of rows (L, E), by a function that torch no longer has."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.c_attn = torch.nn.Linear(embed_dim, 3 * embed_dim)
        self.c_proj = torch.nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        """Return (L, E)."""
        length, _ = x.shape
        q, k, v = self.c_attn(x).view(length, 3, self.num_heads, -1).unbind(1)
        out = torch.nn.functional.attention_of_old(q, k, v)
        return self.c_proj(out.reshape(length, -1))
