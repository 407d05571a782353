"""Layers of one's own in Keras 3, on whatever backend; the wrong ones differ in one line."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops


class ByDense(layers.Layer):
    """Four Dense layers and the weights beside the output; `mask` (N, 1, L, S) is 1 where hidden."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.depth = num_heads, d_model // num_heads
        self.wq, self.wk, self.wv = (layers.Dense(d_model) for _ in range(3))
        self.dense = layers.Dense(d_model)

    def split(self, rows: Any) -> Any:
        """Return (N, H, L, D)."""
        samples, length, _ = ops.shape(rows)
        heads = ops.reshape(rows, (samples, length, self.num_heads, self.depth))
        return ops.transpose(heads, (0, 2, 1, 3))

    def call(self, v: Any, k: Any, q: Any, mask: Any = None) -> Any:
        """Return the output and the weights."""
        samples, length, width = ops.shape(q)
        q, k, v = self.split(self.wq(q)), self.split(self.wk(k)), self.split(self.wv(v))
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * self.scale()
        if mask is not None:
            scores += ops.cast(mask, scores.dtype) * -1e9
        weights = ops.softmax(scores)
        rows = ops.reshape(ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3)),
                           (samples, length, width))  # fmt: skip
        return self.dense(rows), weights

    def scale(self) -> float:
        """Return what scores are multiplied by."""
        return float(self.depth**-0.5)


class ByItsOwnCall(ByDense):
    """Right: it has a call in the place of Keras's own, whose first input is the values."""

    def __call__(self, inputs: Any, k: Any, q: Any, mask: Any) -> Any:
        """Return the output and the weights."""
        return self.call(inputs, k, q, mask)


class ByItsOwnCallUnscaled(ByItsOwnCall):
    """The scores are not scaled."""

    def scale(self) -> float:
        """Return 1."""
        return 1.0


class ByDenseUnscaled(ByDense):
    """The scores are not scaled."""

    def scale(self) -> float:
        """Return 1."""
        return 1.0


class CutOffKeys(ByDense):
    """No gradients reach the projection of the keys."""

    def split(self, rows: Any) -> Any:
        """Return (N, H, L, D), the second of which is cut off in each call."""
        self.calls = getattr(self, "calls", 0) + 1
        heads = super().split(rows)
        return ops.stop_gradient(heads) if self.calls % 3 == 2 else heads


class OwnWeights(layers.Layer):
    """Weights that `build` makes, one list of heads' products, dropout and a norm of the input."""

    def __init__(self, embed_dim: int, num_heads: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.norm = layers.LayerNormalization()
        self.drop = layers.Dropout(dropout)

    def build(self, input_shape: Any) -> None:
        """Make the weights."""
        width = input_shape[-1]
        self.w_qkv = self.add_weight(name="qkv", shape=(width, 3 * self.embed_dim))
        self.w_o = self.add_weight(name="o", shape=(self.embed_dim, self.embed_dim))

    def call(self, x: Any, attention_mask: Any = None, training: bool | None = None) -> Any:
        """`attention_mask`: (N, S), True where a key is seen."""
        samples, length, width = ops.shape(x)
        shape = (samples, length, self.num_heads, width // self.num_heads)
        rows = ops.matmul(self.norm(x), self.w_qkv)
        q, k, v = (ops.reshape(each, shape) for each in ops.split(rows, 3, axis=-1))
        scores = ops.einsum("nlhd,nshd->nhls", q, k) / ops.sqrt(ops.cast(shape[-1], q.dtype))
        if attention_mask is not None:
            kept = ops.cast(attention_mask, "bool")[:, None, None, :]
            scores = ops.where(kept, scores, ops.cast(-1e30, scores.dtype))
        weights = self.drop(ops.softmax(scores), training=training)
        return ops.matmul(ops.reshape(ops.einsum("nhls,nshd->nlhd", weights, v), ops.shape(x)),
                          self.w_o)  # fmt: skip


class KeepsFirstKeys(layers.Layer):
    """The keys of the first call are those of all."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads = num_heads
        self.q_proj, self.k_proj, self.v_proj = (layers.Dense(embed_dim) for _ in range(3))
        self.kept: list[Any] = []

    def call(self, x: Any) -> Any:
        """Return attention to the keys that are kept, where they have this shape."""
        samples, length, width = ops.shape(x)
        shape = (samples, length, self.heads, width // self.heads)
        q, k, v = (ops.reshape(proj(x), shape) for proj in (self.q_proj, self.k_proj, self.v_proj))
        if not self.kept or ops.shape(self.kept[0]) != ops.shape(k):
            self.kept[:] = [k]
        scores = ops.einsum("nlhd,nshd->nhls", q, self.kept[0]) * shape[-1] ** -0.5
        return ops.reshape(ops.einsum("nhls,nshd->nlhd", ops.softmax(scores), v), ops.shape(x))


class WithinAnother(keras.layers.Layer):
    """Keras's own attention with a residual and a norm behind it."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.attention = layers.MultiHeadAttention(num_heads, embed_dim // num_heads)
        self.norm = layers.LayerNormalization()

    def call(self, x: Any) -> Any:
        """Return the rows of the whole block."""
        return self.norm(x + self.attention(query=x, value=x, key=x))
