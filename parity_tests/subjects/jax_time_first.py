"""Attentions of JAX's arrays with rows before samples, and masks of keys before samples."""

import jax
import jax.numpy as jnp


def _attend(q, k, v, hidden):
    s = jnp.einsum("lnhd,snhd->nhls", q, k) / jnp.sqrt(q.shape[-1]).astype(q.dtype)
    if hidden is not None:
        s = jnp.where(hidden.T[:, None, None], -jnp.inf, s)
    return jnp.einsum("nhls,snhd->lnhd", jax.nn.softmax(s), v)


def keys_before_samples(q, k, v, key_padding=None):
    """Right. q: (L, N, H, D), k and v: (S, N, H, D). key_padding: (S, N) bool, True = padding."""
    return _attend(q, k, v, key_padding)


def of_what_is_kept(q, k, v, key_padding=None):
    """Wrong: what is padding alone is seen.

    q: (L, N, H, D), k and v: (S, N, H, D). key_padding: (S, N) bool, True = padding.
    """
    return _attend(q, k, v, None if key_padding is None else ~key_padding)
