"""Layers of NumPy with a `backward` of their own, and of tensors that have one."""

from __future__ import annotations

import numpy as np


def heads_of(x, heads):
    """Return (N, L, E) as (N, H, L, D)."""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def merged(x):
    """Return (N, H, L, D) as (N, L, E)."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


class ByHand:
    """Right: `backward(dout)` returns (dx, dmemory) and adds to `grads`, by the names of `params`."""

    factor = 1.0

    def __init__(self, d_model, n_heads):
        self.heads = n_heads
        self.params = {f"W{part}": np.zeros((d_model, d_model)) for part in "qkvo"}
        self.params |= {f"b{part}": np.zeros(d_model) for part in "qkvo"}
        self.grads = {name: np.zeros_like(each) for name, each in self.params.items()}

    def __call__(self, x, memory=None):
        """Return (N, L, E)."""
        p, rows = self.params, (x, x if memory is None else memory)
        self.rows = dict(zip("qkv", (*rows, rows[1]), strict=True))
        self.parts = {
            part: heads_of(each @ p[f"W{part}"] + p[f"b{part}"], self.heads)
            for part, each in self.rows.items()
        }
        q, k, v = self.parts.values()
        self.scale = q.shape[-1] ** -0.5
        scores = q @ k.swapaxes(-1, -2) * self.scale
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        self.weights = weights / weights.sum(-1, keepdims=True)
        self.rows["o"] = merged(self.weights @ v)
        return self.rows["o"] @ p["Wo"] + p["bo"]

    def affine(self, part, d_y):
        """Add the gradients of a projection's weight and bias, and return that of its rows."""
        self.grads[f"W{part}"] += np.einsum("nle,nlf->ef", self.rows[part], d_y)
        self.grads[f"b{part}"] += d_y.sum(axis=(0, 1)) * (self.factor if part == "q" else 1.0)
        return d_y @ self.params[f"W{part}"].T

    def backward(self, dout):
        """Return the gradients of x and memory."""
        d_heads = heads_of(self.affine("o", dout), self.heads)
        q, k, v = self.parts.values()
        d_p = d_heads @ v.swapaxes(-1, -2)
        d_s = self.weights * (d_p - (d_p * self.weights).sum(-1, keepdims=True)) * self.scale
        d_x = self.affine("q", merged(d_s @ k))
        d_memory = self.affine("k", merged(d_s.swapaxes(-1, -2) @ q))
        d_memory = d_memory + self.affine("v", merged(self.weights.swapaxes(-1, -2) @ d_heads))
        return d_x, d_memory


class OfRequiredMemory(ByHand):
    """Right: where x is the memory as well, its gradient is the sum of both that are returned."""

    def __call__(self, x, mem):
        """Return (N, L, E)."""
        return super().__call__(x, mem)


class OfRequiredMemoryHalved(OfRequiredMemory):
    """Wrong: the gradient of the memory is half of what it should be."""

    def backward(self, dout):
        """Return the gradients of x and memory."""
        d_x, d_memory = super().backward(dout)
        return d_x, d_memory / 2


class BiasTwice(ByHand):
    """Wrong: the gradient of the queries' bias is twice what it should be."""

    factor = 2.0


class OfThreeInputs:
    """Right: `backward(dout)` returns (dq, dk, dv), and no gradient of the mask that is added."""

    def forward(self, q, k, v, mask=None):
        """Return (N, L, D)."""
        self.rows, self.scale = (q, k, v), q.shape[-1] ** -0.5
        scores = q @ k.swapaxes(-1, -2) * self.scale
        scores = scores if mask is None else scores + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        self.weights = weights / weights.sum(-1, keepdims=True)
        return self.weights @ v

    def backward(self, dout):
        """Return the gradients of q, k and v."""
        q, k, v = self.rows
        d_p = dout @ v.swapaxes(-1, -2)
        d_s = self.weights * (d_p - (d_p * self.weights).sum(-1, keepdims=True)) * self.scale
        return d_s @ k, d_s.swapaxes(-1, -2) @ q, self.weights.swapaxes(-1, -2) @ dout


class OfThreeInputsKeysHalved(OfThreeInputs):
    """Wrong: the gradient of the keys is half of what it should be."""

    def backward(self, dout):
        """Return the gradients of q, k and v."""
        d_q, d_k, d_v = super().backward(dout)
        return d_q, d_k / 2, d_v


class Registered(ByHand):
    """Right: tells its weights to the optimizer that it is built with."""

    def __init__(self, optimizer, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.place = f"attention_{optimizer.count_layers('attention')}"
        for name, weight in self.params.items():
            optimizer.register(f"{self.place}.{name}", weight)


class OutBiasAlone(ByHand):
    """Wrong: a layer with a bias of the output alone, half of whose gradient is missing."""

    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        for part in "qkv":
            del self.params[f"b{part}"], self.grads[f"b{part}"]
        self.bias = {f"b{part}": 0.0 for part in "qkv"}

    def __call__(self, x, memory=None):
        """Return (N, L, E)."""
        held = self.params
        self.params = held | self.bias
        try:
            return super().__call__(x, memory)
        finally:
            self.params = held

    def affine(self, part, d_y):
        """Add the gradients of a projection's weight, and of the output's bias."""
        self.grads[f"W{part}"] += np.einsum("nle,nlf->ef", self.rows[part], d_y)
        if part == "o":
            self.grads["bo"] += d_y.sum(axis=(0, 1)) / 2
        return d_y @ self.params[f"W{part}"].T


class OfTheQueryAlone(ByHand):
    """Right forward: its backward returns the gradient of x alone, with keys of their own too."""

    def backward(self, dout):
        """Return the gradient of x."""
        return super().backward(dout)[0]


class Tensor:
    """An array with the backward pass of the few operations that the layer needs."""

    def __init__(self, data, back=None):
        self.data, self.grad, self.back = np.asarray(data), None, back

    def add(self, gradient):
        """Add to the gradient, and go back."""
        self.grad = gradient if self.grad is None else self.grad + gradient
        if self.back is not None:
            self.back(gradient)

    def backward(self):
        """Start with 1."""
        self.add(np.ones_like(self.data))

    def __matmul__(self, other):
        def back(gradient):
            self.add(gradient @ other.data.T)
            other.add(np.einsum("nle,nlf->ef", self.data, gradient))

        return Tensor(self.data @ other.data, back)

    def __mul__(self, other):
        return Tensor(self.data * other.data, lambda gradient: self.add(gradient * other.data))

    def sum(self):
        """Return the sum of all elements."""
        whole = np.broadcast_to
        return Tensor(self.data.sum(), lambda g: self.add(whole(g, self.data.shape)))


class OfTensors:
    """Right: the backward pass of the softmax is written out, all else is that of the tensors."""

    factor = 1.0

    def __init__(self, n_embd, n_head):
        self.n_head = n_head
        self.W_q, self.W_k, self.W_v, self.W_o = (
            Tensor(np.zeros((n_embd, n_embd))) for _ in range(4)
        )

    def __call__(self, x):
        """Return (N, L, E)."""
        q, k, v = (x @ self.W_q, x @ self.W_k, x @ self.W_v)
        heads = [heads_of(each.data, self.n_head) for each in (q, k, v)]
        scale = heads[0].shape[-1] ** -0.5
        scores = heads[0] @ heads[1].swapaxes(-1, -2) * scale
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = weights / weights.sum(-1, keepdims=True)

        def back(gradient):
            d_heads = heads_of(gradient, self.n_head)
            d_p = d_heads @ heads[2].swapaxes(-1, -2)
            d_s = weights * (d_p - (d_p * weights).sum(-1, keepdims=True)) * scale
            q.add(merged(d_s @ heads[1]))
            k.add(self.factor * merged(d_s.swapaxes(-1, -2) @ heads[0]))
            v.add(merged(weights.swapaxes(-1, -2) @ d_heads))

        return Tensor(merged(weights @ heads[2]), back) @ self.W_o


class OfTensorsKeysHalved(OfTensors):
    """Wrong: half of the gradient of k."""

    factor = 0.5


class OfProjectedRows:
    """Has no weights: queries, keys and values are three arrays in self-attention too."""

    def forward(self, q, k, v, mask=None):
        """Return (…, L, D); `mask` is True where a key is hidden."""
        self.q, self.k, self.v = q, k, v
        scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
        scores = scores if mask is None else np.where(mask, -1e30, scores)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        self.weights = weights / weights.sum(-1, keepdims=True)
        return self.weights @ v

    def backward(self, dout):
        """Return the gradients of q, k and v."""
        dweights = dout @ np.swapaxes(self.v, -1, -2)
        dscores = self.weights * (dweights - (dweights * self.weights).sum(-1, keepdims=True))
        dscores = dscores / np.sqrt(self.q.shape[-1])
        dv = np.swapaxes(self.weights, -1, -2) @ dout
        return dscores @ self.k, np.swapaxes(dscores, -1, -2) @ self.q, dv


class OfProjectedRowsKeysHalved(OfProjectedRows):
    """Returns half of the gradient of the keys."""

    def backward(self, dout):
        """Return the gradients of q, k and v."""
        dq, dk, dv = super().backward(dout)
        return dq, dk / 2, dv
