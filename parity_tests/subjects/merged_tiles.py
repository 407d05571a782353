"""Kernels over tiles of 32 keys that are merged by what each tile keeps, in half precision or not."""

from __future__ import annotations

import torch

TILE = 32


def merged(query, key, value, kept):
    """Return the results of tiles, each weighted by what ``kept`` makes of its log-sum-exp."""
    query = query * query.shape[-1] ** -0.5
    results, sums = [], []
    for keys, values in zip(key.split(TILE, -2), value.split(TILE, -2), strict=True):
        scores = query @ keys.mT
        results.append(scores.softmax(-1) @ values)
        sums.append(kept(scores.logsumexp(-1, keepdim=True)))
    weights = torch.stack(sums).softmax(0)
    return (weights * torch.stack(results)).sum(0)


def right(query, key, value):
    """Right: in the dtype of the scores."""
    return merged(query, key, value, lambda sums: sums)


def in_float16(query, key, value):
    """Wrong: kept in float16."""
    return merged(query, key, value, lambda sums: sums.half().to(sums.dtype))


def in_bfloat16(query, key, value):
    """Wrong: kept in bfloat16."""
    return merged(query, key, value, lambda sums: sums.bfloat16().to(sums.dtype))


def doubled(query, key, value):
    """Wrong: by twice the log-sum-exp."""
    return merged(query, key, value, lambda sums: 2 * sums)


def maximum_in_float16(query, key, value):
    """Wrong: each tile's sum is carried on by its maximum, which is kept in float16."""

    def summed(query, keys):
        scores = query @ keys.mT
        highest = scores.amax(-1, keepdim=True)
        return scores, highest.half().to(highest.dtype), (scores - highest).exp()

    query = query * query.shape[-1] ** -0.5
    tiles = [summed(query, keys) for keys in key.split(TILE, -2)]
    most = torch.stack([kept for _, kept, _ in tiles]).amax(0)
    powers = torch.cat([part * (kept - most).exp() for _, kept, part in tiles], -1)
    return powers / powers.sum(-1, keepdim=True) @ value
