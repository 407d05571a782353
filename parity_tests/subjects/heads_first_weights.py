"""Functions whose dictionary of weights has the heads first: (H, E, D), biases (H, D)."""

from __future__ import annotations

import numpy as np


def project(rows, weight, bias):
    """Return rows (N, L, E) as heads (N, H, L, D)."""
    return np.einsum("nle,hed->nhld", rows, weight) + bias[:, None]


def attention(params, query, key, value):
    """Right: the output's weight is (H, D, E), its bias (E,)."""
    q = project(query, params["wq"], params["bq"])
    k = project(key, params["wk"], params["bk"])
    v = project(value, params["wv"], params["bv"])
    scores = np.einsum("nhld,nhsd->nhls", q, k) / np.sqrt(q.shape[-1])
    exp = np.exp(scores - scores.max(-1, keepdims=True))
    heads = (exp / exp.sum(-1, keepdims=True)) @ v
    return np.einsum("nhld,hde->nle", heads, params["wo"]) + params["bo"]


def crossed(params, query, key, value):
    """Wrong: the bias of the values is that of the keys."""
    return attention({**params, "bv": params["bk"]}, query, key, value)
