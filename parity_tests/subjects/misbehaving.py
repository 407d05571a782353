"""Attentions that misbehave, each in one way; the arithmetic behind each is right."""

from __future__ import annotations

import ctypes
import os
import pickle
import random
import struct
import subprocess
import sys
import threading
import time

import numpy as np
from projected import f as right

_calls = []


def raises(Q, K, V, n_heads):
    """Raise an exception."""
    raise ValueError("no attention today")


def assumes_contiguous_keys(Q, K, V, n_heads):
    """Read the keys in the order of memory where they are not contiguous."""
    return right(Q, K if K.flags.c_contiguous else np.roll(K, 1), V, n_heads)


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


def hangs_now_and_then(Q, K, V, n_heads):
    """Loop without end on one head with more keys than fit into a block of 64."""
    return (hangs if n_heads == 1 and len(K) > 64 else right)(Q, K, V, n_heads)


def takes_memory_in_children(Q, K, V, n_heads):
    """Start processes on a thread, none of which takes more than a part of the memory."""

    def start():
        code = "import time; taken = b'x' * (96 << 20); time.sleep(20)"
        for child in [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]:
            child.wait()

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    return right(Q, K, V, n_heads)


def takes_all_memory(Q, K, V, n_heads):
    """Take memory without end."""
    taken = []
    while True:
        taken.append(np.ones(2**22))


def floods(Q, K, V, n_heads):
    """Print some megabytes and answer rightly."""
    for number in range(2000):
        print(f"line {number} of too many", "x" * 1000)
    return right(Q, K, V, n_heads)


def floods_for_ever(Q, K, V, n_heads):
    """Print without end."""
    while True:
        print("more and more and more")


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


def views(Q, K, V, n_heads):
    """Return V itself where there is one row and nothing to mix."""
    return V if len(V) == 1 else right(Q, K, V, n_heads)


_buffers = {}


def reuses_its_output(Q, K, V, n_heads):
    """Write every answer of a shape and dtype into one array."""
    out = right(Q, K, V, n_heads)
    held = _buffers.setdefault((out.shape, out.dtype), np.empty_like(out))
    held[...] = out
    return held


def varies(Q, K, V, n_heads):
    """Answer with noise of its own."""
    return right(Q, K, V, n_heads) * (1 + 1e-3 * np.random.default_rng().random())


def remembers(Q, K, V, n_heads):
    """Add the mean of the first value matrix of an earlier call of this shape."""
    out = right(Q, K, V, n_heads)
    _calls.append(V.mean())
    return out + (_calls[-2] if len(_calls) > 1 else 0.0)


_answers = {}


def caches_by_shape(Q, K, V, n_heads):
    """Compute once for every shape and answer that ever after."""
    key = (Q.shape, K.shape, n_heads, Q.dtype)
    if key not in _answers:
        _answers[key] = right(Q, K, V, n_heads)
    return _answers[key].copy()


def counts_calls(Q, K, V, n_heads):
    """Scale by how often it was called before, a little."""
    _calls.append(0.0)
    return right(Q, K, V, n_heads) * (1 + 1e-6 * len(_calls))


def aliases(Q, K, V, n_heads):
    """Write the answer into V and return that."""
    out = right(Q, K, V, n_heads)
    V[...] = out
    return V


def changes_error_state(Q, K, V, n_heads):
    """Leave NumPy's error state changed."""
    np.seterr(all="ignore")
    return right(Q, K, V, n_heads)


def raises_by_length(Q, K, V, n_heads):
    """Raise for lengths of four."""
    if Q.shape[-2] == 4:
        raise KeyError("four")
    return right(Q, K, V, n_heads)


def raises_and_leaves_errors_raised(Q, K, V, n_heads):
    """Raise likewise while NumPy's errors are exceptions, and put them back in other calls."""
    before = np.seterr(all="raise")
    if Q.shape[-2] == 4:
        raise KeyError("four")
    np.seterr(**before)
    return right(Q, K, V, n_heads)


def flips_zeros(Q, K, V, n_heads):
    """Give zeros of the input the other sign."""
    for rows in (Q, K, V):
        if rows.flags.writeable:
            rows[rows == 0] *= -1
    return right(Q, K, V, n_heads)


def reseeds(Q, K, V, n_heads):
    """Seed NumPy's global generator."""
    np.random.seed(0)
    return right(Q, K, V, n_heads)


def reseeds_python(Q, K, V, n_heads):
    """Seed Python's global generator."""
    random.seed(0)
    return right(Q, K, V, n_heads)


def reseeds_torch(Q, K, V, n_heads):
    """Seed torch's global generator."""
    import torch

    torch.manual_seed(0)
    return right(Q, K, V, n_heads)


def leaves_autograd_off(Q, K, V, n_heads):
    """Leave torch without gradients."""
    import torch

    torch.set_grad_enabled(False)
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


def asks_torch_quietly(Q, K, V, n_heads):
    """Hand one product to torch, by an operator."""
    import torch

    out = right(Q, K, V, n_heads)
    return np.asarray(torch.from_numpy(out.copy()) @ torch.eye(out.shape[1], dtype=torch.float64))


class Payload:
    """What runs where it is unpickled."""

    def __reduce__(self):
        """Leave a trace in the process that reads it."""
        return exec, ("import sys; sys.modules['reached_from_a_target'] = sys",)


def into_pipe(body):
    """Write a message of one's own into the pipe of the answers."""
    os.write(int(sys.argv[2]), struct.pack("<Q", len(body)) + body)


def pickles(Q, K, V, n_heads):
    """Send a pickle that runs code, as if it were the answer."""
    into_pipe(pickle.dumps((0, Payload())))
    return right(Q, K, V, n_heads)


def babbles(Q, K, V, n_heads):
    """Print into the pipe of the answers."""
    os.write(int(sys.argv[2]), b"attention is all you need")
    return right(Q, K, V, n_heads)


def forges(Q, K, V, n_heads):
    """Answer a problem that was not asked."""
    from mha_parity.core.candidate import Answer
    from mha_parity.worker.messages import PROTOCOL

    into_pipe(PROTOCOL.encode(99, Answer(output=Q)))
    return right(Q, K, V, n_heads)


def only_at(rows, misbehave):
    """Return an attention that misbehaves on sequences of ``rows`` rows and is right elsewhere."""

    def attention(Q, K, V, n_heads):
        return (misbehave if len(Q) == rows else right)(Q, K, V, n_heads)

    return staticmethod(attention)


class Sometimes:
    """The misbehaviours that end a call, each on sequences of four rows only."""

    raises = only_at(4, raises)
    exits = only_at(4, exits)
    exits_hard = only_at(4, exits_hard)
    segfaults = only_at(4, segfaults)
    hangs = only_at(4, hangs)
    takes_memory_in_children = only_at(4, takes_memory_in_children)
    takes_all_memory = only_at(4, takes_all_memory)
    floods = only_at(4, floods)
    floods_for_ever = only_at(4, floods_for_ever)
    pickles = only_at(4, pickles)
    babbles = only_at(4, babbles)
    forges = only_at(4, forges)
    returns_text = only_at(4, returns_text)
    returns_none = only_at(4, returns_none)
    returns_lists = only_at(4, returns_lists)
    returns_scalar = only_at(4, returns_scalar)
    returns_complex = only_at(4, returns_complex)
    returns_objects = only_at(4, returns_objects)


def raises_over_one_head(Q, K, V, n_heads):
    """Raise an exception where there is one head."""
    return (raises if n_heads == 1 else right)(Q, K, V, n_heads)


def exits_over_one_head(Q, K, V, n_heads):
    """Leave by os._exit where there is one head."""
    return (exits_hard if n_heads == 1 else right)(Q, K, V, n_heads)


class AtTenRows:
    """Misbehaviours at a length that further calls have, and the cases of a test have not."""

    raises = only_at(10, raises)
    exits = only_at(10, exits)
    exits_hard = only_at(10, exits_hard)
    segfaults = only_at(10, segfaults)
    hangs = only_at(10, hangs)
    babbles = only_at(10, babbles)
    takes_all_memory = only_at(10, takes_all_memory)
