"""Attentions on Q, K and V (N, H, L, D) that leave keys out of the softmax by their score."""

import numpy as np

FURTHEST = 5.0


def softmax_of_near(scores, largest):
    """Return the softmax of the scores that are no more than 5 below ``largest``."""
    near = scores >= largest - FURTHEST
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    powers = np.where(near, np.exp(scores - top), 0)
    return powers / powers.sum(axis=-1, keepdims=True)


def scores_of(query, key):
    """Return q k^T / sqrt(D)."""
    return query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]).astype(query.dtype)


def below_the_row(query, key, value):
    """Wrong: keys far below the largest score of their row."""
    scores = scores_of(query, key)
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    return softmax_of_near(scores, largest) @ value


def below_the_running(query, key, value):
    """Wrong: keys far below the largest score so far, in tiles of 16 keys."""
    scores = scores_of(query, key)
    keys = scores.shape[-1]
    ends = np.minimum(np.arange(keys) // 16 * 16 + 16, keys) - 1
    largest = np.maximum.accumulate(scores, axis=-1)[..., ends]
    return softmax_of_near(scores, largest) @ value


def below_what_came(query, key, value):
    """Wrong: keys far below the largest score so far, key by key."""
    scores = scores_of(query, key)
    return softmax_of_near(scores, np.maximum.accumulate(scores, axis=-1)) @ value


def doubled(query, key, value):
    """Wrong: leaves none out, and takes every score twice; in 16 bits little more than rounding."""
    scores = 2 * scores_of(query, key)
    return softmax_of_near(scores, np.full_like(scores, -np.inf)) @ value
