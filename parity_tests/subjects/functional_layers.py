"""Attentions of flax and haiku; those of flax.linen and haiku make their weights in a first call."""

from __future__ import annotations

import dataclasses

import flax.linen
import haiku
import jax
import jax.numpy as jnp
from flax import nnx


def attend(q, k, v, heads, mask=None, factor=1.0):
    """Return (N, L, E) of rows; where ``mask`` is False, keys are hidden."""
    q, k, v = (each.reshape(*each.shape[:-1], heads, -1) for each in (q, k, v))
    scores = jnp.einsum("...lhd,...shd->...hls", q, k) * factor / q.shape[-1] ** 0.5
    scores = scores if mask is None else jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    mixed = jnp.einsum("...hls,...shd->...lhd", jax.nn.softmax(scores), v)
    return mixed.reshape(*mixed.shape[:-2], -1)


class Compact(flax.linen.Module):
    """Makes its Dense layers in the call, one for queries, keys and values."""

    num_heads: int
    dropout_rate: float = 0.1
    factor = 1.0

    @flax.linen.compact
    def __call__(self, x, deterministic):
        """Return (N, L, E)."""
        rows = flax.linen.Dense(3 * x.shape[-1], name="qkv")(x)
        mixed = attend(*jnp.split(rows, 3, axis=-1), self.num_heads, factor=self.factor)
        mixed = flax.linen.Dropout(self.dropout_rate)(mixed, deterministic=deterministic)
        return flax.linen.Dense(x.shape[-1], name="proj")(mixed)


class ModeOnce(Compact):
    """Takes its mode when it is built or called, and raises where it is given twice."""

    deterministic: bool | None = None

    @flax.linen.compact
    def __call__(self, x, deterministic=None):
        """Return (N, L, E)."""
        mode = flax.linen.merge_param("deterministic", self.deterministic, deterministic)
        return super().__call__(x, mode)


class CompactTwice(Compact):
    """Takes the scores twice."""

    factor = 2.0


class OfKey(Compact):
    """Is called with a key of random numbers, which is no key of an attention."""

    @flax.linen.compact
    def __call__(self, x, key, deterministic):
        """Return (N, L, E)."""
        jax.random.split(key)
        return super().__call__(x, deterministic)


class OfKeyTwice(OfKey):
    """Takes the scores twice."""

    factor = 2.0


class SetUp(flax.linen.Module):
    """Names its Dense layers in ``setup``."""

    d_model: int
    num_heads: int

    def setup(self):
        """Make four of them."""
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            flax.linen.Dense(self.d_model, use_bias=False) for _ in range(4)
        )

    def __call__(self, query, key, value, *, train):
        """Return (N, L, E); ``train`` says that the call is made in training."""
        rows = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        return self.out_proj(attend(*rows, self.num_heads))


class Normed(SetUp):
    """Has a LayerNorm before the projections."""

    def setup(self):
        """Make one more."""
        super().setup()
        self.norm = flax.linen.LayerNorm()

    def __call__(self, query, key, value, *, train):
        """Return (N, L, E)."""
        return super().__call__(*map(self.norm, (query, key, value)), train=train)


class NormedInside(SetUp):
    """Has a LayerNorm behind the projection of the queries, which torch's layer has not."""

    def setup(self):
        """Make one more, behind another projection."""
        super().setup()
        project, norm = self.q_proj, flax.linen.LayerNorm(name="norm")
        self.q_proj = lambda rows: norm(project(rows))


class OfHaiku(haiku.Module):
    """Wants a first value of its weights, and returns its output alone."""

    factor = 1.0

    def __init__(self, num_heads, key_size, *, w_init=None, name=None):
        super().__init__(name=name)
        if w_init is None:
            raise ValueError("w_init is wanted")
        self.heads, self.width, self.w_init = num_heads, num_heads * key_size, w_init

    def __call__(self, query, key, value):
        """Return (..., L, E)."""
        q, k, v = (
            haiku.Linear(self.width, w_init=self.w_init, name=name)(rows)
            for name, rows in (("query", query), ("key", key), ("value", value))
        )
        mixed = attend(q, k, v, self.heads, factor=self.factor)
        return haiku.Linear(self.width, w_init=self.w_init)(mixed)


class OfHaikuTwice(OfHaiku):
    """Takes the scores twice."""

    factor = 2.0


class OfNnx(nnx.Module):
    """A module of flax.nnx, whose metaclass takes whatever its constructor takes."""

    factor = 1.0

    def __init__(self, dim: int, num_heads: int, dtype: jnp.dtype, *, rngs: nnx.Rngs):
        self.num_heads = num_heads
        self.query, self.key, self.value, self.out = (
            nnx.Linear(dim, dim, param_dtype=dtype, rngs=rngs) for _ in range(4)
        )
        self.layer_norm = nnx.LayerNorm(dim, rngs=rngs)

    def __call__(self, x, mask=None):
        """Return (N, L, E), of inputs that are normed first."""
        x = self.layer_norm(x)
        rows = self.query(x), self.key(x), self.value(x)
        return self.out(attend(*rows, self.num_heads, mask, factor=self.factor))


class OfNnxTwice(OfNnx):
    """Takes the scores twice."""

    factor = 2.0


@dataclasses.dataclass
class Config:
    """The sizes of a layer."""

    n_embd: int = 8
    n_head: int = 2


class OfConfig(flax.linen.Module):
    """Right; its number of heads stands in a configuration."""

    config: Config

    @flax.linen.compact
    def __call__(self, x):
        """Return (N, L, E)."""
        rows = flax.linen.Dense(3 * self.config.n_embd, name="c_attn")(x)
        mixed = attend(*jnp.split(rows, 3, axis=-1), self.config.n_head)
        return flax.linen.Dense(self.config.n_embd, name="c_proj")(mixed)
