"""Functions of one head whose softmax runs over an axis that is named by the number of axes."""

from __future__ import annotations

import math
import warnings

import torch
from torch.nn import functional as F  # noqa: N812  (as torch's documentation imports it)

warnings.filterwarnings("ignore", message="Implicit dimension choice")


def of_documented_heads(q, k, v, d_k, dropout=None):
    """Wrong with heads: torch takes the second axis of four where softmax is given none.

    q, k, v: (batch, heads, seq_len, d_k)
    """
    scores = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(d_k), *axis_of(q))
    return (scores if dropout is None else dropout(scores)) @ v


def of_heads_in_words(q, k, v):
    """Wrong: attention on (batch, heads, seq_len, d_k) tensors, the axis left out."""
    return F.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])) @ v


def of_one_sequence(q, k, v, mask=None):
    """Right: attention of one sequence, q (T, d) over k and v (S, d)."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask, -math.inf)
    return scores.softmax(dim=1) @ v


def of_samples(q, k, v):
    """Right: attention of q, k, v (batch, seq_len, d)."""
    return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(dim=2) @ v


def of_no_documented_axes(q, k, v, d_k):
    """Wrong, or of one sequence: the axis is left out."""
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(d_k), *axis_of(q)) @ v


def axis_of(q):
    """Return the axis that torch takes where it is left out, by the number of axes."""
    return (1 if q.dim() in {2, 4} else 0,)


def of_a_width_unread(q, k, v, head_embd):
    """Right of (..., L, D): the width of a head is taken, and not read."""
    return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(dim=-1) @ v


def of_keys_for_values(q, k, v, d_k, config=None):
    """Wrong of (batch, heads, seq_len, d_k): it combines the keys."""
    return (q @ k.transpose(-2, -1) / math.sqrt(d_k)).softmax(dim=-1) @ k + 0 * v[..., :1, :1]
