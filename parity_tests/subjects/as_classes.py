"""The textbook functions as methods: of a class that only groups them, and of objects one calls."""

from __future__ import annotations

import numpy as np


class Parallel:
    """Projection, one head and parallel heads, as static methods."""

    @staticmethod
    def compute_qkv(X: np.ndarray, W_q: np.ndarray, W_k: np.ndarray, W_v: np.ndarray):
        """Return the three projections of X."""
        return tuple(np.einsum("te,ed->td", X, W) for W in (W_q, W_k, W_v))

    @staticmethod
    def self_attention(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Attend with one head."""
        logits = np.inner(Q, K) * Q.shape[-1] ** -0.5
        odds = np.exp(logits - np.max(logits, axis=1)[:, None])
        return (odds / odds.sum(axis=1)[:, None]) @ V

    @classmethod
    def multi_head_attention(cls, Q: np.ndarray, K: np.ndarray, V: np.ndarray, n_heads: int):
        """Attend in parallel heads and join them."""
        triples = zip(*(np.array_split(A, n_heads, axis=1) for A in (Q, K, V)))
        return np.concatenate([cls.self_attention(*each) for each in triples], axis=1)


class Packed:
    """An object that is called with X and its weight matrices."""

    def __call__(self, x, w_query, w_key, w_value, heads):
        """Return (T, E): all heads in one einsum."""
        q, k, v = (np.dot(x, w).reshape(len(x), heads, -1) for w in (w_query, w_key, w_value))
        logits = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1])
        odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
        odds /= odds.sum(axis=-1, keepdims=True)
        return np.einsum("hij,jhd->ihd", odds, v).reshape(len(x), -1)

    def one_head(self, x, w_query, w_key, w_value):
        """Return (T, E) of a single head."""
        return self(x, w_query, w_key, w_value, 1)


packed = Packed()
