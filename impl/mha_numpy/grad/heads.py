"""Attention on heads, forwards now and backwards when asked, by the engine that is named.

The formulas are those of `scaled_dot_product_attention_vjp`, with dP = dO v^T on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_numpy.attention import apply_weights, attend, by_key_head, draw_kept, multiply_heads
from mha_numpy.engines.dispatch import cut_batch
from mha_numpy.engines.threads import holding_blas, on_all_threads
from mha_numpy.grad.flash import attend_flash_vjp
from mha_numpy.grad.targets import HeadGradients, Pull, sum_to

if TYPE_CHECKING:
    from mha_numpy.call import Heads
    from mha_numpy.dtypes import Array
    from mha_numpy.masks import Masking


def attend_heads_vjp(heads: Heads, engine: str) -> tuple[Array, Array | None, Pull]:
    """Return (heads_out, weights, pull): attention as in `dispatch`, and its backward pass.

    heads_out (N, H, L, Dv) is 0 in rows that see no key; weights (N, H, L, S), after dropout,
    belong to `pull`, and are None where nothing holds them.
    """
    options = heads.options
    if engine == "flash":
        shares = cut_batch(options, heads.scores)
        if len(shares) > 1 and not heads.masking.bias:
            return attend_shares_vjp(heads, shares)
        return attend_flash_vjp(*heads[:5], need_weights=options.need_weights)
    kept = draw_kept(heads.scores, options.dropout_p, options.rng, heads.q.dtype)
    return attend_plain_vjp(*heads[:5], kept=kept)


def attend_shares_vjp(heads: Heads, shares: list[slice]) -> tuple[Array, Array | None, Pull]:
    """Return what `attend_heads_vjp` does, each share of the batch by the plain engine.

    Where heads are short, the calls of flash for each cost more than their arithmetic. Float masks
    are not taken: samples may share one, and its gradient.
    """
    n, num_heads, queries, _ = heads.scores
    merged = np.empty((n, queries, num_heads, heads.v.shape[3]), heads.q.dtype)
    heads_out, weights = merged.transpose(0, 2, 1, 3), None
    if heads.options.need_weights:
        weights = np.empty(heads.scores, heads.q.dtype)
    pulls: dict[int, Pull] = {}

    def compute_share(index: int) -> None:
        own = shares[index]
        q, k, v, masking, scale, _ = heads
        masking = masking.of_samples(own)
        out, found, pulls[index] = attend_plain_vjp(q[own], k[own], v[own], masking, scale)
        heads_out[own] = out
        if weights is not None:
            weights[own] = found

    def pull(d_heads: Array, d_weights: Array | None, into: HeadGradients) -> None:
        def pull_share(index: int) -> None:
            own = shares[index]
            targets = HeadGradients(into.q[own], into.k[own], into.v[own], ())
            pulls[index](d_heads[own], None if d_weights is None else d_weights[own], targets)

        on_all_threads(pull_share, len(shares))

    on_all_threads(compute_share, len(shares))
    return heads_out, weights, pull


def attend_plain_vjp(
    q: Array, k: Array, v: Array, masking: Masking, scale: float, *, kept: Array | None = None
) -> tuple[Array, Array, Pull]:
    """Return what `attend_heads_vjp` does, by the plain engine, which holds its weights."""
    multiplications = q.size * k.shape[2]
    with holding_blas(multiplications):
        heads_out, found = attend(q, k, v, masking, scale, empty_rows_are_zero=True)
    assert found is not None  # noqa: S101 (need_weights is on; this tells the type checker)
    weights = dropped = found
    if kept is not None:
        dropped = weights * kept
        heads_out = apply_weights(dropped, v)

    def pull(d_heads: Array, d_weights: Array | None, into: HeadGradients) -> None:
        groups = k.shape[1]
        d_rows = by_key_head(d_heads, groups)
        with holding_blas(multiplications):
            d_scores = multiply_heads(d_heads, v.swapaxes(2, 3))
            if d_weights is not None:
                d_scores += d_weights
            if kept is not None:
                d_scores *= kept
            d_scores -= np.vecdot(weights, d_scores)[..., None]
            d_scores *= weights
            np.matmul(by_key_head(dropped, groups).swapaxes(2, 3), d_rows, out=into.v)
            for target in into.bias:
                np.add(target, sum_to(d_scores, target.shape), out=target)
            np.multiply(multiply_heads(d_scores, k), scale, out=into.q)
            by_head = by_key_head(d_scores, groups)
            np.matmul(by_head.swapaxes(2, 3), by_key_head(q * scale, groups), out=into.k)

    return heads_out, dropped, pull
