"""Functions of weights of which some default to None."""

from __future__ import annotations

import numpy as np


def _heads(rows, num_heads):
    return rows.reshape(*rows.shape[:2], num_heads, -1).swapaxes(1, 2)


def _mixed(q, k, v, num_heads):
    q, k, v = (_heads(rows, num_heads) for rows in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ v).swapaxes(1, 2).reshape(len(q), q.shape[2], -1)


def _linear(x, weight, bias):
    return x @ weight.T + (0 if bias is None else bias)


def biases(query, key, value, Wq, Wk, Wv, Wo, bq=None, bk=None, bv=None, bo=None, num_heads=8):
    """Right: each bias is added where it is given."""
    rows = _linear(query, Wq, bq), _linear(key, Wk, bk), _linear(value, Wv, bv)
    return _linear(_mixed(*rows, num_heads), Wo, bo)


def bias_of_keys(
    query, key, value, Wq, Wk, Wv, Wo, bq=None, bk=None, bv=None, bo=None, num_heads=8
):
    """Wrong: the values get the bias of the keys."""
    del bv
    return biases(query, key, value, Wq, Wk, Wv, Wo, bq, bk, bk, bo, num_heads=num_heads)


def output(x, w_q, w_k, w_v, num_heads, w_o=None, b_o=None):
    """Right: an output projection where it is given."""
    rows = _mixed(x @ w_q, x @ w_k, x @ w_v, num_heads)
    rows = rows if w_o is None else rows @ w_o
    return rows if b_o is None else rows + b_o


def output_turned(x, w_q, w_k, w_v, num_heads, w_o=None, b_o=None):
    """Wrong: the weight of the output alone is applied as its transpose."""
    turned = None if w_o is None else w_o.T
    return output(x, w_q, w_k, w_v, num_heads, turned, b_o)


def another_meaning(x, w_q, w_k, w_v, num_heads, w_o=None):
    """Right: what is called a weight takes a name, and raises for anything else."""
    if w_o not in {None, "identity"}:
        raise TypeError("w_o should be a name")
    return output(x, w_q, w_k, w_v, num_heads)
