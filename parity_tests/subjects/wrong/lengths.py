"""Wrong on purpose, as layers with valid lengths: forward(queries, keys, values, valid_lens)."""

from __future__ import annotations

import numpy as np

EXPECTED = {
    "OneTooMany": "lengths-off-by-one",
    "FirstLength": "mask-first-sample-only",
    "WrongEnd": "padding-from-start",
    "FaintMask": "mask-as-zero-logit",
    "NoMask": "mask-ignored",
    "Mixed": "split-no-transpose",
}


class Right:
    """Lengths hide the keys behind them."""

    def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
        self.num_heads = num_heads
        for name in ("W_q", "W_k", "W_v", "W_o"):
            setattr(self, name, np.eye(num_hiddens))
        for name in ("b_q", "b_k", "b_v", "b_o"):
            setattr(self, name, np.zeros(num_hiddens))

    def heads(self, x):
        return np.array([np.split(row, self.num_heads, axis=1) for row in x])

    def unheads(self, x):
        return np.array([np.hstack(list(row)) for row in x])

    def hidden(self, lengths, keys):
        return np.array([[j >= n for j in range(keys)] for n in lengths])

    fill = -np.inf

    def forward(self, queries, keys, values, valid_lens):
        q = self.heads(np.dot(queries, self.W_q) + self.b_q)
        k = self.heads(np.dot(keys, self.W_k) + self.b_k)
        v = self.heads(np.dot(values, self.W_v) + self.b_v)
        z = np.matmul(q, np.swapaxes(k, 2, 3)) / q.shape[-1] ** 0.5
        if valid_lens is not None:
            hidden = self.hidden(np.asarray(valid_lens), z.shape[-1])
            z = np.ma.filled(np.ma.array(z, mask=z * 0 + hidden[:, None, None, :]), self.fill)
        with np.errstate(invalid="ignore"):
            e = np.exp(z - np.max(z, axis=-1, keepdims=True))
            e = e / np.sum(e, axis=-1, keepdims=True)
        return (np.dot(self.unheads(np.matmul(e, v)), self.W_o) + self.b_o).astype(queries.dtype)


class OneTooMany(Right):
    def hidden(self, lengths, keys):
        return super().hidden(np.asarray(lengths) + 1, keys)


class FirstLength(Right):
    def hidden(self, lengths, keys):
        return super().hidden([lengths[0]] * len(lengths), keys)


class WrongEnd(Right):
    def hidden(self, lengths, keys):
        return super().hidden(lengths, keys)[:, ::-1]


class FaintMask(Right):
    fill = -1e-9


class NoMask(Right):
    def hidden(self, lengths, keys):
        return np.zeros((len(lengths), keys), dtype=bool)


class Mixed(Right):
    def heads(self, x):
        n, t, e = x.shape
        return x.reshape(n, self.num_heads, t, e // self.num_heads)
