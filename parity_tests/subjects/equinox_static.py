"""Causal layers of equinox with a static mask called `bias`, and dropout that gets no key."""

import equinox as eqx
import jax
import jax.numpy as jnp


class Static(eqx.Module):
    """Right in inference; in training its dropout raises, as its call takes no key."""

    qkv: eqx.nn.Linear
    proj: eqx.nn.Linear
    dropout: eqx.nn.Dropout
    bias: jax.Array = eqx.field(static=True)
    num_heads: int = eqx.field(static=True)

    def __init__(self, embed_dim, num_heads, key, dropout=0.1, block_size=2200):
        one, other = jax.random.split(key)
        self.num_heads = num_heads
        self.qkv = eqx.nn.Linear(embed_dim, 3 * embed_dim, key=one)
        self.proj = eqx.nn.Linear(embed_dim, embed_dim, key=other)
        self.dropout = eqx.nn.Dropout(dropout)
        self.bias = jnp.tril(jnp.ones((block_size, block_size)))

    def scaled(self, q):
        return q / jnp.sqrt(q.shape[-1]).astype(q.dtype)

    def __call__(self, x):
        parts = jnp.split(jax.vmap(self.qkv)(x), 3, axis=1)
        q, k, v = (each.reshape(len(x), self.num_heads, -1).swapaxes(0, 1) for each in parts)
        scores = self.scaled(q) @ k.swapaxes(-1, -2)
        scores = jnp.where(self.bias[: len(x), : len(x)] == 0, -jnp.inf, scores)
        weights = self.dropout(jax.nn.softmax(scores, axis=-1))
        return jax.vmap(self.proj)((weights @ v).swapaxes(0, 1).reshape(x.shape))


class Unscaled(Static):
    """Wrong: it does not scale."""

    def scaled(self, q):
        return q
