"""Attentions with dropout: right ones, and such as are wrong in training alone, each in one way."""

from __future__ import annotations

import numpy as np
from mha_numpy import MultiheadAttention


class _Steps:
    """Attention over (..., L, D) arrays in steps that can be replaced."""

    def __call__(
        self,
        query,
        key,
        value,
        attn_mask=None,
        dropout_p=0.0,
        is_causal=False,
        scale=None,
        rng=None,
    ):
        """Return the output and the weights of every head."""
        if query.dtype.kind == "i":
            raise TypeError("integers are no queries")
        logits = np.einsum("...ld,...sd->...ls", query, key)
        logits = logits * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = np.tri(*logits.shape[-2:], dtype=bool)
        if attn_mask is not None:
            keep = attn_mask.dtype == bool
            logits = np.where(attn_mask, logits, -np.inf) if keep else logits + attn_mask
        even = (rng or np.random.default_rng()).random(logits.shape)
        weights = self.weights(logits, even, dropout_p)
        used = self.drop(weights, even, dropout_p)
        out = np.einsum("...ls,...sd->...ld", used, value)
        out = self.behind(out, even, dropout_p).astype(query.dtype)
        return out, self.shown(weights, used).astype(query.dtype)

    def weights(self, logits, even, p):
        """Return the softmax."""
        odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return odds / odds.sum(axis=-1, keepdims=True)

    def drop(self, weights, even, p):
        """Return the weights that meet the values."""
        return weights * self.kept(even, p) * self.gain(p)

    def kept(self, even, p):
        """Return 1 where a weight stays."""
        return even >= p

    def gain(self, p):
        """Return what is left of the mean, turned round."""
        return 1 / max(1 - p, 1e-9)

    def behind(self, out, even, p):
        """Return the output."""
        return out

    def shown(self, weights, used):
        """Return the weights that the caller sees."""
        return used


class _KeepsSize(_Steps):
    def gain(self, p):
        return 1


class _DividesByP(_Steps):
    def gain(self, p):
        return 1 / p if p else 1


class _Sharpens(_Steps):
    def weights(self, logits, even, p):
        return super().weights(logits * (2 if p else 1), even, p)


class _DropsLogits(_Steps):
    def weights(self, logits, even, p):
        return super().weights(np.where(even >= p, logits, -np.inf), even, p)

    def drop(self, weights, even, p):
        return weights if p < 1 else 0 * even


class _ZeroesLogits(_Steps):
    def weights(self, logits, even, p):
        return super().weights(np.where(even >= p, logits * self.gain(p), 0), even, p)

    def drop(self, weights, even, p):
        return weights if p < 1 else 0 * even


class _DropsOutput(_Steps):
    def drop(self, weights, even, p):
        return weights

    def behind(self, out, even, p):
        draws = np.random.default_rng(int(even.flat[0] * 2**32)).random(out.shape)
        return out * (draws >= p) * self.gain(p)


class _KeepsP(_Steps):
    def kept(self, even, p):
        return even < p if 0 < p < 1 else even >= p


class _DividesByZero(_Steps):
    def gain(self, p):
        return np.float64(1) / (1 - p)


class _ShowsClean(_Steps):
    def shown(self, weights, used):
        return weights


def _function(steps):
    """Return the attention as a function of torch's name and keywords."""

    def attend(
        query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, rng=None
    ):
        return steps(query, key, value, attn_mask, dropout_p, is_causal, scale, rng)

    return attend


right = _function(_Steps())
keeps_size = _function(_KeepsSize())
divides_by_p = _function(_DividesByP())
drops_logits = _function(_DropsLogits())
zeroes_logits = _function(_ZeroesLogits())
drops_output = _function(_DropsOutput())
keeps_p = _function(_KeepsP())
sharpens = _function(_Sharpens())
divides_by_zero = _function(_DividesByZero())
shows_clean = _function(_ShowsClean())


class Ignores(MultiheadAttention):
    """Takes a dropout, and drops nothing."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, **options):
        super().__init__(embed_dim, num_heads, 0.0, **options)


class StaysOff(MultiheadAttention):
    """Stays as it was evaluated, for all later training."""

    def train(self, mode=True):
        """Switch, unless it was evaluated."""
        self.training = mode and not getattr(self, "_evaluated", False)
        return self

    def eval(self):
        """Switch for good."""
        object.__setattr__(self, "_evaluated", True)
        return self.train(mode=False)


class DrawsAgain(MultiheadAttention):
    """Drops other weights in the backward pass than in the forward pass."""

    def vjp(self, *args, **options):
        """Return a result and the backward pass of another."""
        return super().vjp(*args, **options)[0], super().vjp(*args, **options)[1]


class Cuts(MultiheadAttention):
    """Takes as many keys and values as there are of both."""

    def forward(self, query, key, value, *args, **options):
        """Cut the longer."""
        axis = -2 if self.batch_first or query.ndim == 2 else 0
        both = range(min(key.shape[axis], value.shape[axis]))
        key, value = (np.take(rows, both, axis=axis) for rows in (key, value))
        return super().forward(query, key, value, *args, **options)

    __call__ = forward


def fills_like_q(Q, K, V, n_heads):
    """Fill an array like Q, head by head."""
    out = np.zeros_like(Q, shape=(len(Q), V.shape[1]))
    for q, k, v, part in zip(*(np.array_split(A, n_heads, axis=1) for A in (Q, K, V, out))):
        logits = q @ k.T / np.sqrt(q.shape[1]).astype(out.dtype if out.dtype.kind == "f" else float)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        part[...] = odds / odds.sum(axis=1, keepdims=True) @ v
    return out


def casts_to_q(Q, K, V, n_heads):
    """Compute in float64 and answer in the dtype of Q."""
    wide = (A.astype(np.float64) for A in (Q, K, V))
    heads = zip(*(np.array_split(A, n_heads, axis=1) for A in wide))
    logits, values = zip(*((q @ k.T / np.sqrt(q.shape[1]), v) for q, k, v in heads))
    odds = [np.exp(z - z.max(axis=1, keepdims=True)) for z in logits]
    mixed = [e / e.sum(axis=1, keepdims=True) @ v for e, v in zip(odds, values)]
    return np.concatenate(mixed, axis=1).astype(Q.dtype)
