"""Functions of TensorFlow's tensors; the wrong ones differ in one line."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """q, k, v: (N, H, L, D); mask: (N, 1, L, S), True where a key is seen."""
    scores = tf.matmul(q, k, transpose_b=True) / tf.sqrt(tf.cast(tf.shape(q)[-1], q.dtype))
    if mask is not None:
        scores = tf.where(mask, scores, scores.dtype.min)
    return tf.matmul(tf.nn.softmax(scores), v)


@tf.function
def traced(q: Any, k: Any, v: Any) -> Any:
    """q, k, v: (N, H, L, D)."""
    return attention(q, k, v)


def unscaled(q: Any, k: Any, v: Any) -> Any:
    """q, k, v: (N, H, L, D)."""
    return tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True)), v)


@tf.custom_gradient
def _halved(x: Any) -> Any:
    return tf.identity(x), lambda gradient: gradient / 2


def halves_the_gradient(q: Any, k: Any, v: Any) -> Any:
    """q, k, v: (N, H, L, D)."""
    return attention(q, _halved(k), v)


def cast_late(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """q, k, v: (N, H, L, D); mask: (N, 1, L, S)."""
    scores = tf.matmul(q, k, transpose_b=True) / tf.sqrt(tf.cast(tf.shape(q)[-1], q.dtype))
    if mask is not None:
        scores += tf.cast(mask * -1e9, scores.dtype)
    return tf.matmul(tf.nn.softmax(scores), v)
