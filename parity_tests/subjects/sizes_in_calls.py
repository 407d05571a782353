"""Functions that get the sizes of their rows, besides the weights in a dictionary."""

from __future__ import annotations

import numpy as np


def attention(params, x, mask, batch_size, seq_len, num_heads, hidden_dim):
    """Right: mask is added to the scores."""
    width = hidden_dim // num_heads
    q, k, v = (
        (x @ params[name]).reshape(batch_size, seq_len, num_heads, width).transpose(0, 2, 1, 3)
        for name in ("q_linear", "k_linear", "v_linear")
    )
    scores = q @ k.swapaxes(-1, -2) * x.dtype.type(factor(hidden_dim, num_heads))
    scores = scores if mask is None else scores + mask
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    rows = powers / powers.sum(-1, keepdims=True) @ v
    return rows.transpose(0, 2, 1, 3).reshape(x.shape) @ params["o_linear"]


def factor(hidden_dim, num_heads):
    """Return the factor of the scores."""
    return (hidden_dim // num_heads) ** -0.5


def scaled_by_all(params, x, mask, batch_size, seq_len, num_heads, hidden_dim):
    """Wrong: it divides by the root of all channels."""
    root = np.sqrt(num_heads).astype(x.dtype)
    params = params | {"q_linear": params["q_linear"] / root}
    return attention(params, x, mask, batch_size, seq_len, num_heads, hidden_dim)
