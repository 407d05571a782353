"""Whole models of which one method is an attention, and layers that keep an array in two places."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from styles import attend, merge, split


def softmax(scores):
    """Return weights, whose rows sum to 1."""
    odds = np.exp(scores - scores.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)


class Model:
    """Right in `_attend`: one head, among other weights of the same shapes."""

    scaled = True

    def __init__(self, vocab_size, d_model=16, d_ff=16):
        self.d_model = d_model
        self.embedding = np.zeros((vocab_size, d_model))
        self.Q_weight, self.K_weight, self.V_weight, self.O_weight, self.L1, self.L2 = (
            np.random.default_rng(i).random((d_model, d_model)) for i in range(6)
        )

    def _feed_forward(self, rows):
        return np.maximum(rows @ self.L1, 0) @ self.L2

    def _projected(self, rows):
        return rows @ self.Q_weight, rows @ self.K_weight, rows @ self.V_weight

    def _attend(self, rows):
        q, k, v = self._projected(rows)
        scores = q @ k.swapaxes(-1, -2) / (self.d_model**0.5 if self.scaled else 1)
        return softmax(scores) @ v @ self.O_weight

    @staticmethod
    def attention(q, k, v):
        """Return (N, L, E): a function, which needs no object."""
        return softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v


class ModelUnscaled(Model):
    """Wrong: its scores are not scaled."""

    scaled = False


class Block(nn.Module):
    """Right in `attend`: the feed-forward weights beside it are none of an attention."""

    swapped = False

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def attend(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.num_heads) for each in self.qkv(x).chunk(3, -1))
        q, k = (k, q) if self.swapped else (q, k)
        return self.proj(merge(attend(q, k, v)))

    def forward(self, x):
        """Return (N, L, E)."""
        x = x + self.attend(x)
        return x + self.fc2(torch.relu(self.fc1(x)))


class BlockSwapped(Block):
    """Wrong: the keys ask the queries."""

    swapped = True


class CalledOtherwise(Block):
    """Right in `forward`, and wrong in `call`, which is not what calling it does."""

    forward = Block.attend

    def call(self, x):
        """Return (N, L, E), of keys that ask the queries."""
        q, k, v = (split(each, self.num_heads) for each in self.qkv(x).chunk(3, -1))
        return self.proj(merge(attend(k, q, v)))


class Registered:
    """Right: keeps each array in a dictionary too, and reads its attributes."""

    factor = 1.0

    def __init__(self, d_model, num_heads):
        self.heads, self.kept = num_heads, {"weights": {}, "biases": {}}
        self.W_q, self.W_k, self.W_v, self.W_h = (
            self._new(name, (d_model, d_model)) for name in ("enc_q", "enc_k", "enc_v", "enc_h")
        )
        self.bias_h = self._new("enc_h", (d_model,), "biases")

    def _new(self, name, shape, kind="weights"):
        self.kept[kind][name] = np.random.default_rng(len(name)).random(shape)
        return self.kept[kind][name]

    def weights(self):
        """Return the weights, and the bias, that are used."""
        return self.W_q, self.W_k, self.W_v, self.W_h, self.bias_h

    def forward(self, x):
        """Return (N, L, E)."""
        w_q, w_k, w_v, w_h, bias = self.weights()
        q, k, v = (
            (x @ w).reshape(*x.shape[:2], self.heads, -1).swapaxes(1, 2) for w in (w_q, w_k, w_v)
        )
        scores = self.factor * q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        return (softmax(scores) @ v).swapaxes(1, 2).reshape(x.shape) @ w_h + bias


class ReadsItsDictionary(Registered):
    """Right: reads the arrays of the dictionary, which attributes hold too."""

    def weights(self):
        """Return the weights, and the bias, that are used."""
        return (*self.kept["weights"].values(), *self.kept["biases"].values())


class ReadsItsDictionaryTwice(ReadsItsDictionary):
    """Wrong: takes the scores twice."""

    factor = 2.0
