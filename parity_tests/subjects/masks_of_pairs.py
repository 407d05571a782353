"""Functions whose mask is the product of one of queries and one of keys, both or none passed."""

from __future__ import annotations

import torch


def multiplied(query, key, value, query_mask=None, key_mask=None):
    """Right: 1 keeps, (N, L) and (N, S); one of them alone is not read."""
    scores = torch.bmm(query, key.mT) / query.shape[-1] ** 0.5
    if query_mask is not None and key_mask is not None:
        kept = torch.bmm(query_mask[:, :, None], key_mask[:, None])
        scores = scores.masked_fill(kept == 0, -torch.inf)
    return torch.bmm(scores.softmax(dim=-1), value)


def multiplied_late(query, key, value, query_mask=None, key_mask=None):
    """Wrong on purpose: the mask of keys is that of the next key."""
    moved = None if key_mask is None else key_mask.roll(1, dims=-1)
    return multiplied(query, key, value, query_mask, moved)


def never(query, key, value, query_mask=None, key_mask=None):
    """Wrong on purpose: no mask is read."""
    return multiplied(query, key, value)
