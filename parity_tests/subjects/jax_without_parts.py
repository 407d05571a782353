"""Attentions of JAX with parts that torch's layer lacks."""

import jax
import jax.numpy as jnp
from flax import linen as nn


def with_positions(x):
    """Return rows whose halves are turned by an angle for each position."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[-2])[:, None] * 0.3 ** jnp.arange(half)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


@jax.jit
def attention(q, k, v):
    """q, k, v: (N, H, L, D)."""
    scores = jnp.einsum("nhld,nhsd->nhls", with_positions(q), with_positions(k))
    return jax.nn.softmax(scores / jnp.sqrt(q.shape[-1])) @ v


class Layer(nn.Module):
    """Norms of q and k, and rotary positions by a function."""

    features: int
    num_heads: int

    @nn.compact
    def __call__(self, x):
        split = (self.num_heads, self.features // self.num_heads)
        q, k, v = (nn.DenseGeneral(split, name=name)(x) for name in ("query", "key", "value"))
        q, k = nn.RMSNorm(name="q_norm")(q), nn.RMSNorm(name="k_norm")(k)
        q, k, v = (rows.swapaxes(1, 2) for rows in (q, k, v))
        heads = attention(q, k, v).swapaxes(1, 2)
        return nn.DenseGeneral(self.features, axis=(-2, -1), name="out")(heads)
