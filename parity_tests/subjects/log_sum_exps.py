"""Attentions on Q, K and V (N, H, L, D) that return the log-sum-exp of each row's scores."""

import math

import numpy as np
import torch


def rows_and_scores(query, key, value, mask, is_causal):
    """Return softmax(scores) v, and the scores; what is hidden has a score of -inf."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if is_causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ value, scores


def natural(query, key, value, mask=None, is_causal=False):
    """Return rows and one number for each; keys at which `mask` is False are hidden."""
    rows, scores = rows_and_scores(query, key, value, mask, is_causal)
    return rows, scores.logsumexp(-1)


def heads_last(query, key, value, mask=None, is_causal=False):
    """Return the same with the log-sum-exp as (N, L, H, 1)."""
    rows, lse = natural(query, key, value, mask, is_causal)
    return rows, lse.mT[..., None]


def in_float32(query, key, value, mask=None, is_causal=False):
    """Return the same in float32, whatever the rows are in."""
    rows, lse = natural(query, key, value, mask, is_causal)
    return rows, lse.float()


def documented_base(query, key, value, mask=None, is_causal=False):
    """Return the rows and their log-sum-exp to base 2."""
    rows, lse = natural(query, key, value, mask, is_causal)
    return rows, lse / math.log(2)


def by_a_switch(query, key, value, mask=None, is_causal=False, return_lse=False):
    """Return the rows, and their log-sum-exp where it is asked for."""
    rows, lse = natural(query, key, value, mask, is_causal)
    return (rows, lse) if return_lse else rows


def by_a_switch_to_base_two(query, key, value, mask=None, is_causal=False, return_lse=False):
    """Wrong: the logarithm has another base, where it is asked for."""
    rows, lse = natural(query, key, value, mask, is_causal)
    return (rows, lse / math.log(2)) if return_lse else rows


def one_head(query, key, value):
    """Return rows (N, L, D) of arrays of NumPy, and the log-sum-exp (N, L)."""
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]).astype(query.dtype)
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - largest)
    sums = powers.sum(axis=-1, keepdims=True)
    return powers / sums @ value, (largest + np.log(sums))[..., 0]


def to_base_two(query, key, value, mask=None, is_causal=False):
    """Wrong: the logarithm has another base, which nothing says."""
    rows, lse = natural(query, key, value, mask, is_causal)
    lse = lse / math.log(2)
    return rows, lse


def two_bases(query, key, value, mask=None, is_causal=False):
    """Wrong: the maximum is divided by log(2), and the logarithm of the sum is not."""
    rows, scores = rows_and_scores(query, key, value, mask, is_causal)
    largest = scores.amax(-1)
    lse = largest / math.log(2) + (scores - largest[..., None]).exp().sum(-1).log()
    return rows, lse


def maximum_lost(query, key, value, mask=None, is_causal=False):
    """Wrong: the maximum that was subtracted is not added."""
    rows, scores = rows_and_scores(query, key, value, mask, is_causal)
    lse = (scores - scores.amax(-1, keepdim=True)).exp().sum(-1).log()
    return rows, lse


def mask_lost(query, key, value, mask=None, is_causal=False):
    """Wrong: without the mask, of which nothing but the log-sum-exp shows it."""
    rows, _ = rows_and_scores(query, key, value, mask, is_causal)
    return rows, rows_and_scores(query, key, value, None, is_causal)[1].logsumexp(-1)


def largest_tile(query, key, value, mask=None, is_causal=False):
    """Wrong: the largest of those of tiles of 16 keys."""
    rows, scores = rows_and_scores(query, key, value, mask, is_causal)
    lse = torch.stack([each.logsumexp(-1) for each in scores.split(16, dim=-1)]).amax(0)
    return rows, lse


def maximum_unscaled(query, key, value, mask=None, is_causal=False):
    """Wrong: the maximum is added as it is before the scores are scaled."""
    rows, scores = rows_and_scores(query, key, value, mask, is_causal)
    largest = scores.amax(-1)
    lse = largest * math.sqrt(query.shape[-1])
    lse = lse + (scores - largest[..., None]).exp().sum(-1).log()
    return rows, lse


def negative(query, key, value, mask=None, is_causal=False):
    """Wrong: its negative."""
    rows, lse = natural(query, key, value, mask, is_causal)
    lse = -lse
    return rows, lse


def strange(query, key, value, mask=None, is_causal=False):
    """Wrong in no way that has a name."""
    rows, lse = natural(query, key, value, mask, is_causal)
    lse = lse + lse.cos()
    return rows, lse


def not_of_rows(query, key, value, mask=None, is_causal=False):
    """Return one number a row that is called otherwise: the largest score."""
    rows, scores = rows_and_scores(query, key, value, mask, is_causal)
    return rows, scores.amax(-1)
