"""A layer in NumPy with gradients written by hand, right, and wrong in one way each."""

from __future__ import annotations

import numpy as np


def wide_sum(rows):
    """Return the sum over samples and rows; of float16 in float32, as kernels sum."""
    wide = np.promote_types(rows.dtype, np.float32)
    return rows.sum(axis=(0, 1), dtype=wide).astype(rows.dtype)


class Layer:
    """torch's layer with packed weights: query, key and value of one width, and a mask."""

    def __init__(self, embed_dim, num_heads, bias=True, batch_first=False):
        """Keep the sizes; the weights come by ``load_state_dict``."""
        self.num_heads = num_heads
        self.batch_first = batch_first
        self._state = {
            "in_proj_weight": np.zeros((3 * embed_dim, embed_dim)),
            "out_proj.weight": np.zeros((embed_dim, embed_dim)),
        }
        if bias:
            self._state["in_proj_bias"] = np.zeros(3 * embed_dim)
            self._state["out_proj.bias"] = np.zeros(embed_dim)

    def state_dict(self):
        """Return the weights."""
        return dict(self._state)

    def load_state_dict(self, state):
        """Take the weights."""
        self._state = {name: np.array(array) for name, array in state.items()}

    def __call__(self, query, key, value, attn_mask=None):
        """Return the output."""
        return self.vjp(query, key, value, attn_mask)[0]

    def vjp(self, query, key, value, attn_mask=None):
        """Return the output, and the function from its cotangent to the gradients."""
        single = query.ndim == 2
        turn = (lambda a: a[None]) if single else self._turn
        x = [turn(a) for a in (query, key, value)]
        weights = np.split(self._state["in_proj_weight"], 3)
        rows = [a @ w.T for a, w in zip(x, weights)]
        if "in_proj_bias" in self._state:
            rows = [a + b for a, b in zip(rows, np.split(self._state["in_proj_bias"], 3))]
        q, k, v = (self._split(a) for a in rows)
        scale = q.dtype.type(q.shape[-1] ** -0.5)
        scores = q @ k.swapaxes(-1, -2) * scale
        if attn_mask is not None:
            scores = scores + self._additive(attn_mask, scores)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        heads = p @ v
        merged = self._merge(heads)
        output = merged @ self._state["out_proj.weight"].T
        if "out_proj.bias" in self._state:
            output = output + self._state["out_proj.bias"]

        def pull(cotangent):
            g = turn(cotangent)
            found = {"out_proj.weight": self.d_out_weight(g, merged)}
            if "out_proj.bias" in self._state:
                found["out_proj.bias"] = wide_sum(g)
            d_heads = self._split(g @ self._state["out_proj.weight"])
            d_scores = self.d_scores(p, d_heads @ v.swapaxes(-1, -2))
            d_rows = [
                self._merge(d)
                for d in (
                    self.d_q(d_scores @ k * scale, scale),
                    d_scores.swapaxes(-1, -2) @ q * scale,
                    self.d_v(p.swapaxes(-1, -2) @ d_heads),
                )
            ]
            d_weights = [np.einsum("nto,nti->oi", d, a) for d, a in zip(d_rows, x)]
            found["in_proj_weight"] = np.concatenate(d_weights)
            if "in_proj_bias" in self._state:
                found["in_proj_bias"] = np.concatenate([wide_sum(d) for d in d_rows])
            for name, d, w in zip(("query", "key", "value"), d_rows, weights):
                found[name] = (d @ w)[0] if single else self._turn(d @ w)
            if attn_mask is not None and attn_mask.dtype != bool:
                found["attn_mask"] = self.d_mask(d_scores, attn_mask)
            return found

        return (output[0] if single else self._turn(output)), pull

    def d_scores(self, p, d_p):
        """Return the gradient of the scores."""
        return p * (d_p - (p * d_p).sum(axis=-1, keepdims=True))

    def d_q(self, gradient, scale):
        """Return the gradient of the query heads."""
        return gradient

    def d_v(self, gradient):
        """Return the gradient of the value heads."""
        return gradient

    def d_out_weight(self, cotangent, merged):
        """Return the gradient of the output projection."""
        return np.einsum("nto,nti->oi", cotangent, merged)

    def d_mask(self, d_scores, mask):
        """Return the gradient of a mask: summed over what it was repeated for."""
        if mask.ndim == 2:
            return d_scores.sum(axis=(0, 1))
        return d_scores.reshape(mask.shape)

    def _turn(self, rows):
        return rows if self.batch_first else rows.swapaxes(0, 1)

    def _split(self, rows):
        return rows.reshape(*rows.shape[:2], self.num_heads, -1).swapaxes(1, 2)

    def _merge(self, heads):
        return heads.swapaxes(1, 2).reshape(heads.shape[0], heads.shape[2], -1)

    def _additive(self, mask, scores):
        if mask.dtype == bool:
            mask = np.where(mask, -np.inf, 0).astype(scores.dtype)
        return mask if mask.ndim == 2 else mask.reshape(scores.shape)


class Remembers(Layer):
    """Offers ``backward`` after a call, and no ``vjp``."""

    vjp = None

    def __call__(self, query, key, value, attn_mask=None):
        """Return the output, and keep the backward pass."""
        output, self._pull = Layer.vjp(self, query, key, value, attn_mask)
        return output

    def backward(self, cotangent):
        """Return the gradients of the last call."""
        return self._pull(cotangent)


class Forgets(Remembers):
    """Offers a ``backward`` that cannot be called."""

    def backward(self, cotangent):
        """Look for what was never kept."""
        return self._tape[cotangent]


class LeavesOutMask(Layer):
    """Returns no gradient of a mask."""

    def d_mask(self, d_scores, mask):
        """Return nothing."""


class Negates(Layer):
    """Gives the gradient of the values with the other sign."""

    def d_v(self, gradient):
        """Descend where one should ascend."""
        return -gradient


class ForgetsScale(Layer):
    """Leaves the scale out of the gradient of the queries."""

    def d_q(self, gradient, scale):
        """Take the scale out again."""
        return gradient / scale


class TransposesWeight(Layer):
    """Gives the gradient of out_proj.weight as (in, out)."""

    def d_out_weight(self, cotangent, merged):
        """Multiply the other way round."""
        return super().d_out_weight(cotangent, merged).T


class ForgetsBroadcast(Layer):
    """Does not sum the gradient of a mask over the samples and heads that share it."""

    def d_mask(self, d_scores, mask):
        """Return that of the first sample and head."""
        return d_scores[0, 0] if mask.ndim == 2 else super().d_mask(d_scores, mask)


class ForgetsRowTerm(Layer):
    """Takes the softmax for its diagonal: each weight depends on its own score alone."""

    def d_scores(self, p, d_p):
        """Leave out what the sum of a row does."""
        return p * d_p


class ForgetsFirstHead(Layer):
    """Has a wrong gradient in one head alone."""

    def d_q(self, gradient, scale):
        """Exchange the first two columns of head 0."""
        gradient = gradient.copy()
        gradient[:, 0, :, :2] = gradient[:, 0, :, 1::-1]
        return gradient
