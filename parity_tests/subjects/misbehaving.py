"""Attentions that misbehave, each in one way; the arithmetic behind each is right."""

from __future__ import annotations

import ctypes
import os
import sys
import time

import numpy as np
from projected import f as right

_calls = []


def raises(Q, K, V, n_heads):
    """Raise an exception."""
    raise ValueError("no attention today")


def exits(Q, K, V, n_heads):
    """Leave by sys.exit."""
    sys.exit(3)


def exits_hard(Q, K, V, n_heads):
    """Leave by os._exit, after a last word."""
    print("goodbye", flush=True)
    os._exit(3)


def segfaults(Q, K, V, n_heads):
    """Read address 0."""
    return ctypes.string_at(0)


def hangs(Q, K, V, n_heads):
    """Loop without end."""
    while True:
        time.sleep(0.01)


def hangs_at_four_rows(Q, K, V, n_heads):
    """Loop without end on sequences of four rows only."""
    while len(Q) == 4:
        pass
    return right(Q, K, V, n_heads)


def dies_at_four_rows(Q, K, V, n_heads):
    """End the process on sequences of four rows only."""
    if len(Q) == 4:
        os.abort()
    return right(Q, K, V, n_heads)


def takes_all_memory(Q, K, V, n_heads):
    """Take memory without end."""
    taken = []
    while True:
        taken.append(np.ones(2**22))


def floods(Q, K, V, n_heads):
    """Print some megabytes and answer rightly."""
    for _ in range(2000):
        print("x" * 1000)
    return right(Q, K, V, n_heads)


def returns_text(Q, K, V, n_heads):
    """Return a string."""
    return "the answer"


def returns_none(Q, K, V, n_heads):
    """Return nothing."""


def returns_lists(Q, K, V, n_heads):
    """Return nested lists."""
    return right(Q, K, V, n_heads).tolist()


def returns_scalar(Q, K, V, n_heads):
    """Return one number."""
    return float(right(Q, K, V, n_heads).sum())


def returns_complex(Q, K, V, n_heads):
    """Return complex numbers."""
    return right(Q, K, V, n_heads).astype(complex)


def returns_objects(Q, K, V, n_heads):
    """Return an array of objects."""
    return right(Q, K, V, n_heads).astype(object)


def writes_inputs(Q, K, V, n_heads):
    """Scale Q in place."""
    out = right(Q, K, V, n_heads)
    Q *= 2
    return out


def varies(Q, K, V, n_heads):
    """Answer with noise of its own."""
    return right(Q, K, V, n_heads) * (1 + 1e-3 * np.random.default_rng().random())


def remembers(Q, K, V, n_heads):
    """Add the mean of the first value matrix of an earlier call of this shape."""
    out = right(Q, K, V, n_heads)
    _calls.append(V.mean())
    return out + (_calls[-2] if len(_calls) > 1 else 0.0)


def aliases(Q, K, V, n_heads):
    """Write the answer into V and return that."""
    out = right(Q, K, V, n_heads)
    V[...] = out
    return V


def changes_error_state(Q, K, V, n_heads):
    """Leave NumPy's error state changed."""
    np.seterr(all="ignore")
    return right(Q, K, V, n_heads)


def reseeds(Q, K, V, n_heads):
    """Seed NumPy's global generator."""
    np.random.seed(0)
    return right(Q, K, V, n_heads)


def draws(Q, K, V, n_heads):
    """Draw from NumPy's global generator, which is no misbehaviour."""
    np.random.rand()
    return right(Q, K, V, n_heads)


def changes_print_options(Q, K, V, n_heads):
    """Leave NumPy's print options changed."""
    np.set_printoptions(precision=1)
    return right(Q, K, V, n_heads)


def asks_torch(Q, K, V, n_heads):
    """Hand the work to torch."""
    import torch

    q, k, v = (torch.tensor(a).reshape(len(a), n_heads, -1).transpose(0, 1) for a in (Q, K, V))
    heads = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return heads.transpose(0, 1).reshape(len(Q), -1).numpy()
