"""Attentions that do what looks like misbehaviour and is none; each computes the right thing."""

from __future__ import annotations

import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from projected import f as right

_scales = {}


def plain(Q, K, V, n_heads):
    """Compute and nothing else."""
    return right(Q, K, V, n_heads)


def rests_over_one_head(Q, K, V, n_heads):
    """Take a while where there is one head."""
    if n_heads == 1:
        time.sleep(0.01)
    return right(Q, K, V, n_heads)


def rests(Q, K, V, n_heads):
    """Take three twentieths of a second, whatever the problem."""
    time.sleep(0.15)
    return right(Q, K, V, n_heads)


def talks(Q, K, V, n_heads):
    """Print a line."""
    print("attending to", len(K), "keys")
    return right(Q, K, V, n_heads)


def warns(Q, K, V, n_heads):
    """Warn."""
    warnings.warn("this is going to be slow", stacklevel=1)
    return right(Q, K, V, n_heads)


def draws(Q, K, V, n_heads):
    """Draw from NumPy's global generator without seeding it."""
    np.random.rand()
    return right(Q, K, V, n_heads)


def sets_error_state_within(Q, K, V, n_heads):
    """Change NumPy's error state and print options, and put them back."""
    with np.errstate(all="ignore"), np.printoptions(precision=1):
        return right(Q, K, V, n_heads)


def remembers_scales(Q, K, V, n_heads):
    """Keep what depends on the width alone."""
    width = Q.shape[1] // n_heads
    scale = _scales.setdefault(width, width**-0.5)
    heads = [np.stack(np.split(a, n_heads, axis=1)) for a in (Q, K, V)]
    logits = heads[0] @ heads[1].swapaxes(1, 2) * scale
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.concatenate(list(weights @ heads[2]), axis=1)


def catches(Q, K, V, n_heads):
    """Raise and catch an exception of its own."""
    try:
        raise ValueError("caught in this function")
    except ValueError:
        return right(Q, K, V, n_heads)


def uses_a_thread(Q, K, V, n_heads):
    """Compute in a thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(right, Q, K, V, n_heads).result()


def returns_a_view(Q, K, V, n_heads):
    """Return a read-only view, in Fortran order, of an array of its own."""
    out = np.asfortranarray(right(Q, K, V, n_heads))[:]
    out.flags.writeable = False
    return out


def has_torch_at_hand(Q, K, V, n_heads):
    """Import torch and leave it alone."""
    import torch

    assert torch is not None
    return right(Q, K, V, n_heads)
