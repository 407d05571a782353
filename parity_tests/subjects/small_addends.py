"""Attentions on Q, K and V (N, H, L, D) whose sums of exponentials are off, by little."""

import numpy as np


def exponentials(query, key, over_all=False):
    """Return exp(score - maximum) of each row, or less the largest score of all rows."""
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]).astype(query.dtype)
    axis = None if over_all else -1
    return np.exp(scores - scores.max(axis=axis, keepdims=True, initial=-np.inf))


def in_each_row(query, key, value):
    """Wrong: 1e-12 is added to the sum of a row."""
    powers = exponentials(query, key)
    return powers / (powers.sum(axis=-1, keepdims=True) + 1e-12) @ value


def less_the_largest_of_all(query, key, value):
    """Wrong: 1e-9 is added, and the largest score of all rows subtracted."""
    powers = exponentials(query, key, over_all=True)
    return powers / (powers.sum(axis=-1, keepdims=True) + powers.dtype.type(1e-9)) @ value


def in_the_root(query, key, value):
    """Wrong: 1e-12 is added to the root of D."""
    scores = query @ key.swapaxes(-1, -2) / (np.sqrt(query.shape[-1]).astype(query.dtype) + 1e-12)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(axis=-1, keepdims=True) @ value


def in_the_square(query, key, value):
    """Wrong: 1e-12 is added to D itself."""
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1] + 1e-12).astype(query.dtype)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(axis=-1, keepdims=True) @ value


def by_rows(query, key, value):
    """Wrong: row i is 1 + 1e-9 i times as large."""
    powers = exponentials(query, key)
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return weights @ value * (1 + 1e-9 * np.arange(1, weights.shape[-2] + 1)[:, None])


def near_rounding(query, key, value):
    """Wrong: elements are off by up to a thousand roundings, each by another number of them."""
    powers = exponentials(query, key)
    output = powers / powers.sum(axis=-1, keepdims=True) @ value
    return output + 6e-13 * np.sin(1e3 * output)


def at_least_after_all(query, key, value):
    """Wrong: a sum is 0.01 at least, after the largest score of all rows is subtracted."""
    powers = exponentials(query, key, over_all=True)
    return powers / np.maximum(powers.sum(axis=-1, keepdims=True), 0.01) @ value


def at_least(query, key, value):
    """Wrong: a sum is 40 at least, of exponentials of the scores as they are."""
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]).astype(query.dtype)
    powers = np.exp(scores)
    return powers / np.maximum(powers.sum(axis=-1, keepdims=True), 40) @ value


def at_least_as_keys(query, key, value):
    """Wrong: a sum is at least the number of keys."""
    powers = np.exp(query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]).astype(query.dtype))
    return powers / np.maximum(powers.sum(axis=-1, keepdims=True), key.shape[-2]) @ value


def at_most(query, key, value):
    """Wrong: a sum is 2 at most."""
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]).astype(query.dtype)
    powers = np.exp(scores)
    return powers / np.minimum(powers.sum(axis=-1, keepdims=True), 2) @ value


def constant(query, key, value):
    """Wrong: the sum is 1000 in each row."""
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]).astype(query.dtype)
    return np.exp(scores) / 1000 @ value
