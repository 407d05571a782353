"""Multi-head attention, from sequences to sequences.

    q, k, v = projections of query, key and value, split into heads
    head_h = softmax(q_h k_h^T / sqrt(D) + M) v_h
    output = concat(head_1, ..., head_H) W_o^T + b_o

The module and the functional form share this page; `call` checks what they are given.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_numpy.call import CallOptions, CheckedCall, Heads, check_call
from mha_numpy.engines.dispatch import attend_heads, choose_engine, cut_batch
from mha_numpy.engines.threads import limit_blas_threads, on_all_threads
from mha_numpy.projections import Projections, append_keys, project_heads, project_to_heads

if TYPE_CHECKING:
    from mha_numpy.call import Given
    from mha_numpy.dtypes import Array
    from mha_numpy.engines.dispatch import Results


def multi_head_attention(inputs: Given, parameters: Projections, options: CallOptions) -> Results:
    """Return (output, weights or None), all inputs checked; in the caller's dtype and layout."""
    call = check_call(inputs, parameters, options)
    shares = cut_batch(call.options, call.scores)
    results = compute(call) if len(shares) == 1 else compute_shares(call, shares)
    return as_given(call, *results)


def compute(call: CheckedCall) -> Results:
    """Return (output, weights or None) in the working dtype, with a batch axis."""
    engine, out_proj = choose_engine(call.options, call.scores), call.parameters.out_proj
    with limit_blas_threads(engine):
        heads_out, weights = attend_heads(heads_of(call), engine)
        output, _ = project_heads(heads_out, out_proj, call.options.batch_first)
        return output, weights


def compute_shares(call: CheckedCall, shares: list[slice]) -> Results:
    """Return what `compute` does, the shares of the batch side by side on all threads."""
    n, _, queries, keys = call.scores
    query, out_proj = call.inputs[0], call.parameters.out_proj
    output = np.empty((*query.shape[:2], len(out_proj.weight)), query.dtype)
    weights = None
    if call.options.need_weights:
        shape = (n, queries, keys) if call.options.average_attn_weights else call.scores
        weights = np.empty(shape, output.dtype)

    def compute_share(index: int) -> None:
        samples = shares[index]
        found, found_weights = compute(call.of_samples(samples))
        output[samples if call.options.batch_first else (slice(None), samples)] = found
        if weights is not None:
            weights[samples] = found_weights

    on_all_threads(compute_share, len(shares))
    return output, weights


def as_given(call: CheckedCall, output: Array, weights: Array | None) -> Results:
    """Return the results in the caller's dtype, without a batch axis where there was none."""
    if output.dtype != call.dtype:
        output = output.astype(call.dtype)
        weights = None if weights is None else weights.astype(call.dtype)
    if call.batched:
        return output, weights
    return output[0], None if weights is None else weights[0]


def heads_of(call: CheckedCall) -> Heads:
    """Return q, k and v as heads, the appended keys among them, and the scale 1 / sqrt(D)."""
    parameters, options = call.parameters, call.options
    heads, batch_first = options.num_heads, options.batch_first
    q, k, v = project_to_heads(call.inputs, parameters, heads, batch_first=batch_first)
    k, v = _static(options.static_k, k), _static(options.static_v, v)
    if call.masking.appended:
        k = append_keys(k, parameters.bias_k, call.masking.appended)
        v = append_keys(v, parameters.bias_v, call.masking.appended)
    return Heads(q, k, v, call.masking, 1 / math.sqrt(q.shape[-1]), options)


def _static(static: Array | None, projected: Array) -> Array:
    """Return static_k or static_v (N*H, S, D) as (N, H, S, D), or else what was projected."""
    if static is None:
        return projected
    n, heads, _, head_dim = projected.shape
    return static.reshape(n, heads, static.shape[1], head_dim).astype(projected.dtype)
