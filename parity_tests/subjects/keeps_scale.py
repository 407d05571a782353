"""An attention that keeps the scale of its first call in its module."""

import numpy as np

_kept = []


def attention(Q, K, V, n_heads):
    """Divide the scores by the root of the head width that came first."""
    heads = [np.stack(np.split(rows, n_heads, axis=-1)) for rows in (Q, K, V)]
    _kept.append(np.sqrt(heads[0].shape[-1]).astype(Q.dtype))
    scores = heads[0] @ heads[1].swapaxes(1, 2) / _kept[0]
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return np.concatenate(list(weights @ heads[2]), axis=-1)


class OfEachCall:
    """Right: one object for heads of any width, without weights."""

    def __init__(self, n_heads):
        self.n_heads, self.scale = n_heads, None

    def scale_of(self, q):
        """Return the scale of this call."""
        return q.shape[-1] ** -0.5

    def __call__(self, q, k, v):
        """Return (N, L, E)."""
        q, k, v = (x.reshape(*x.shape[:2], self.n_heads, -1).swapaxes(1, 2) for x in (q, k, v))
        scores = q @ k.swapaxes(2, 3) * self.scale_of(q)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = weights / weights.sum(axis=-1, keepdims=True)
        return (weights @ v).swapaxes(1, 2).reshape(q.shape[0], q.shape[2], -1)


class OfFirstCall(OfEachCall):
    """Wrong: the scale of the first call is that of all later ones."""

    def scale_of(self, q):
        """Return the scale that was computed first."""
        self.scale = self.scale or super().scale_of(q)
        return self.scale


class OfConstructor(OfEachCall):
    """Right: it is built for heads of one width."""

    def __init__(self, n_heads, head_dim):
        super().__init__(n_heads)
        self.scale = head_dim**-0.5

    def scale_of(self, q):
        """Return the scale that it was built with."""
        return self.scale
