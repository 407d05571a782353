"""Wrong on purpose, one for each way of being called that the other wrong ones leave out."""

from __future__ import annotations

import numpy as np


def softmax(scores, axis=-1):
    """Return weights along an axis."""
    odds = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return odds / odds.sum(axis=axis, keepdims=True)


def one_head(Q, K, V):
    """Attend with one head, the queries competing for a key."""
    return softmax(Q @ K.T / np.sqrt(Q.shape[-1]), axis=0) @ V


def one_head_from_x(X, Wq, Wk, Wv):
    """Attend with one head without scaling."""
    return softmax((X @ Wq) @ (X @ Wk).T) @ (X @ Wv)


def project(X, W_q, W_k, W_v):
    """Return queries and keys in each other's place."""
    return X @ W_k, X @ W_q, X @ W_v


class Masked:
    """A layer over one sequence that attends to what the mask should hide."""

    def __init__(self, d_model, num_heads):
        self.num_heads = num_heads
        self.W_Q = self.W_K = self.W_V = self.W_O = np.eye(d_model)

    def forward(self, X, mask=None):
        """Return (T, E) and the weights of every head."""
        q, k, v = (
            np.stack(np.split(X @ W, self.num_heads, axis=1)) for W in (self.W_Q, self.W_K, self.W_V)
        )
        logits = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
        if mask is not None:
            logits = np.where(mask == 1, -1e9, logits)
        weights = softmax(logits)
        return np.concatenate(weights @ v, axis=1) @ self.W_O, weights


def build(d_model, num_heads):
    """Return a layer: not its class, so that the way of calling it has to be named."""
    return Masked(d_model, num_heads)
