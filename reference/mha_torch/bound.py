r"""A bound on what rounding can do to one attention, computed with its stages.

Each step is bounded by the standard model of floating-point arithmetic (Higham, Accuracy and
Stability of Numerical Algorithms, chapters 2 and 3): an inner product of n terms, summed in any
order, with or without fused multiply-add, is off by at most :math:`\gamma_n \sum |a_i||b_i|` with
:math:`\gamma_n = n u / (1 - n u)`. Errors of earlier steps are carried on by magnitudes. What
shifts logit j by at most :math:`\delta_j` changes its weight by at most the factor
:math:`e^{\delta_j} \sum_i p_i e^{\delta_i}` either way, because softmax forgets a common shift.

No rounding can explain a difference above the bound, whatever order the sums were taken in. It
holds for answers that scale before or after the product, subtract the exact maximum of the row,
and divide the weights before or after mixing; it assumes an exp good to two units in the last
place, as those of torch and of C libraries are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_torch.plain import Array, Stages, in_projection, split_heads

if TYPE_CHECKING:
    from collections.abc import Mapping

SCALING = 8  # roundings that form the scale and apply it, in one place or on both factors
MASKING = 3  # two masks added to each other and to the score
SOFTMAX = 8  # exp (4 units of roundoff), its subtraction, division, and their second order


@dataclass(frozen=True, slots=True)
class AttentionBound:
    """The largest error that rounding can cause, element by element."""

    weights: Array
    """(N, H, L, S')."""
    output: Array
    """(N, L, E)."""


def gamma(terms: int, unit: float) -> float:
    """Return Higham's gamma_n, infinite where n * unit reaches 1."""
    return terms * unit / (1 - terms * unit) if terms * unit < 1 else float("inf")


def unit_roundoff(dtype: np.dtype[np.floating] | type[np.floating]) -> float:
    """Return half the distance from 1 to the next number."""
    return float(np.finfo(dtype).eps) / 2


def attention_bound(
    query: Array,
    key: Array,
    value: Array,
    state: Mapping[str, Array],
    stages: Stages,
    *,
    unit: float,
    tiny: float = 0.0,
) -> AttentionBound:
    """Bound the error of an attention computed with unit roundoff `unit`.

    `stages` are those of `plain.stages` on the same problem; `tiny` is the smallest normal
    number, if products that underflow are to be allowed for. Rows with NaN have a NaN bound.
    """
    heads = stages.q.shape[1]
    weights, biases = in_projection(state, query.shape[-1], np.float64)
    errors = [
        split_heads(_linear_error(inputs, weight, bias, 0.0, unit=unit, tiny=tiny), heads)
        for inputs, weight, bias in zip((query, key, value), weights, biases, strict=True)
    ]
    dq, dk, dv = (
        _appended(error, rows)
        for error, rows in zip(errors, (stages.q, stages.k, stages.v), strict=True)
    )
    scale = 1 / np.sqrt(stages.q.shape[-1])
    d_weights, d_heads = mixing_bound(stages, (dq, dk, dv), scale, unit, tiny)
    d_merged = d_heads.swapaxes(1, 2).reshape(stages.merged.shape)
    out_weight, out_bias = state.get("out_proj.weight"), state.get("out_proj.bias")
    output = _linear_error(stages.merged, out_weight, out_bias, d_merged, unit=unit, tiny=tiny)
    return AttentionBound(d_weights, output)


def sdpa_bound(stages: Stages, unit: float, scale: float | None = None, tiny: float = 0.0) -> Array:
    """Bound the error of a scaled dot-product attention whose inputs are exact."""
    factor = 1 / np.sqrt(stages.q.shape[-1]) if scale is None else abs(scale)
    exact = tuple(np.zeros(rows.shape) for rows in (stages.q, stages.k, stages.v))
    return mixing_bound(stages, (exact[0], exact[1], exact[2]), factor, unit, tiny)[1]


def mixing_bound(
    stages: Stages,
    errors: tuple[Array, Array, Array],
    scale: float,
    unit: float,
    tiny: float = 0.0,
) -> tuple[Array, Array]:
    """Return the bounds of weights and heads, given those of q, k and v."""
    q, k, v = (np.abs(rows.astype(np.float64)) for rows in (stages.q, stages.k, stages.v))
    dq, dk, dv = errors
    logits = stages.logits.astype(np.float64)
    width, keys = q.shape[-1], k.shape[-2]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        reach = scale * _product(q + dq, k + dk)
        carried = scale * (_product(dq, k + dk) + _product(q, dk))
        # A mask is no larger than the logit it led to plus the score it was added to.
        made = gamma(width + SCALING + MASKING, unit) * (2 * reach + np.abs(logits)) + width * tiny
        spread = np.abs(logits - logits.max(axis=-1, keepdims=True, initial=-np.inf))
        # Rows that see nothing are 0 without any arithmetic.
        shift = np.where(np.isneginf(logits), 0.0, carried + made + unit * spread)
        d_weights = _softmax_error(logits, shift, gamma(keys + SOFTMAX, unit)) + tiny
        weights = stages.weights.astype(np.float64)
        mixed = np.matmul(d_weights, v + dv) + np.matmul(weights, dv)
        summed = gamma(keys + 1, unit) * np.matmul(weights + d_weights, v + dv) + keys * tiny
    return d_weights, mixed + summed


def _softmax_error(logits: Array, shift: Array, relative: float) -> Array:
    """Return how far the weights can move when logit j moves by up to shift_j.

    In logarithms, so that a weight that underflows here but need not elsewhere counts as well.
    """
    log_p = logits - _logsumexp(logits)
    moved = shift + np.maximum(_logsumexp(log_p + shift), 0.0)
    most = np.exp(np.minimum(log_p + moved, 0.0))
    error: Array = most * (-np.expm1(-moved) + relative)
    return np.minimum(error, 1.0)


def _logsumexp(rows: Array) -> Array:
    highest = rows.max(axis=-1, keepdims=True, initial=-np.inf)
    total: Array = highest + np.log(np.exp(rows - highest).sum(axis=-1, keepdims=True))
    return total


def _linear_error(
    inputs: Array,
    weight: Array | None,
    bias: Array | None,
    error: Array | float,
    *,
    unit: float,
    tiny: float,
) -> Array:
    """Bound the error of inputs @ weight.T + bias; an absent weight is exact."""
    rows = np.abs(np.asarray(inputs).astype(np.float64))
    carried = np.broadcast_to(error, rows.shape)
    reach, terms = rows + carried, 0
    if weight is not None:
        columns = np.abs(np.asarray(weight).astype(np.float64)).T
        carried, reach, terms = np.matmul(carried, columns), np.matmul(reach, columns), len(columns)
    if bias is not None:
        reach, terms = reach + np.abs(np.asarray(bias).astype(np.float64)), terms + 1
    bound: Array = carried + gamma(terms, unit) * reach + terms * tiny
    return bound


def _product(rows: Array, columns: Array) -> Array:
    return np.asarray(np.matmul(rows, columns.swapaxes(-1, -2)))


def _appended(error: Array, rows: Array) -> Array:
    """Add rows without error for the keys that were appended as they are."""
    extra = rows.shape[2] - error.shape[2]
    return np.pad(error, [(0, 0), (0, 0), (0, extra), (0, 0)])
