"""Functions whose dictionary of weights has the heads first: (H, E, D), biases (H, D)."""

from __future__ import annotations

import numpy as np

from weight_dictionaries import attend as merged
from weight_dictionaries import dense, split


def project(rows, weight, bias):
    """Return rows (N, L, E) as heads (N, H, L, D)."""
    return np.einsum("nle,hed->nhld", rows, weight) + bias[:, None]


def attend(params, query, key, value, added):
    """Return (N, L, E): the output's weight is (H, D, E), its bias (E,)."""
    q = project(query, params["wq"], params["bq"])
    k = project(key, params["wk"], params["bk"])
    v = project(value, params["wv"], params["bv"])
    scores = np.einsum("nhld,nhsd->nhls", q, k) / np.sqrt(q.shape[-1])
    scores = scores if added is None else scores + added
    exp = np.exp(scores - scores.max(-1, keepdims=True))
    heads = (exp / exp.sum(-1, keepdims=True)) @ v
    return np.einsum("nhld,hde->nle", heads, params["wo"]) + params["bo"]


def attention(params, query, key, value):
    return attend(params, query, key, value, None)


def crossed(params, query, key, value):
    """Wrong: the bias of the values is that of the keys."""
    return attention({**params, "bv": params["bk"]}, query, key, value)


def of_two_inputs(params, x_q, x_kv, mask=None, bias=None):
    """Right: parameters named as those of JAX's attention, behind other inputs."""
    added = None if bias is None else bias.astype(x_q.dtype)
    if mask is not None:
        hidden = np.where(mask, 0, -np.inf).astype(x_q.dtype)
        added = hidden if added is None else hidden + added
    return attend(params, x_q, x_kv, x_kv, added)


def of_two_inputs_scaled(params, x_q, x_kv, mask=None, bias=None):
    """Wrong: the bias is scaled together with the scores."""
    width = params["wq"].shape[-1]
    return of_two_inputs(params, x_q, x_kv, mask, None if bias is None else bias / width**0.5)


def read_by_another_file(params, x, num_heads):
    """Right: what reads weight and bias of each Linear is a function of another file."""
    q, k, v = (split(dense(params[name], x), num_heads) for name in ("q", "k", "v"))
    return dense(params["out"], merged(q, k, v))


def read_by_another_file_crossed(params, x, num_heads):
    """Wrong: the same, with keys and values exchanged."""
    q, k, v = (split(dense(params[name], x), num_heads) for name in ("q", "k", "v"))
    return dense(params["out"], merged(q, v, k))
