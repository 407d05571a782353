"""The way back through attention that held its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy._materialised import drop_inplace, mix, weigh
from mha_numpy._vjp_targets import HeadGradients, Pull, sum_to

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mha_numpy._masking import Masking


def attend_materialised_vjp(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    masking: Masking,
    scale: float,
    *,
    dropout_p: float = 0.0,
    rng: np.random.Generator | None = None,
) -> tuple[NDArray[Any], NDArray[Any], Pull]:
    """Return (heads_out, weights after dropout, pull), 0 in rows that see no key.

    Shapes as in `attend`. The weights belong to `pull`: they are to be copied before they are
    written to.
    """
    weights = weigh(q, k, masking, scale, empty_rows_are_zero=True)
    dropped = weights
    if dropout_p:
        dropped = weights.copy()
        drop_inplace(dropped, dropout_p, rng)

    def pull(d_heads: NDArray[Any], d_weights: NDArray[Any] | None, into: HeadGradients) -> None:
        groups = k.shape[1]
        d_rows = by_kv_head(d_heads, groups)
        d_logits = _d_logits((d_rows @ v.swapaxes(2, 3)).reshape(weights.shape), d_weights)
        np.matmul(by_kv_head(dropped, groups).swapaxes(2, 3), d_rows, out=into.v)
        for target in into.bias:
            np.add(target, sum_to(d_logits, target.shape), out=target)
        d_scores = by_kv_head(d_logits, groups)
        np.multiply((d_scores @ k).reshape(q.shape), scale, out=into.q)
        np.matmul(d_scores.swapaxes(2, 3), by_kv_head(q * scale, groups), out=into.k)

    def _d_logits(d_dropped: NDArray[Any], d_weights: NDArray[Any] | None) -> NDArray[Any]:
        """Turn dO v^T, (N, H, L, S), into the gradient of the logits, in place.

        With dropout P * dP is the dropped weights times their own cotangent: the cells that fell
        out are 0 there, the others have their 1 / (1 - p).
        """
        if d_weights is not None:
            d_dropped += d_weights
        level = np.vecdot(dropped, d_dropped)[..., None]
        if dropped is weights:
            d_dropped -= level
            d_dropped *= weights
        else:
            d_dropped *= dropped
            d_dropped -= weights * level
        return d_dropped

    return mix(dropped, v), dropped, pull


def by_kv_head(array: NDArray[Any], groups: int) -> NDArray[Any]:
    """Return (N, H, L, .) as (N, Hkv, H / Hkv * L, .): the rows of all heads that share a key."""
    n, heads, queries, width = array.shape
    if heads == groups:
        return array
    return array.reshape(n, groups, heads // groups * queries, width)
