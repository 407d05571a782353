"""Project an error on the directions in which mistakes move an attention's output.

A direction is the derivative of the output for a small mistake of one kind: all outputs too large
by one factor (gain), all scores (scale), exp too large in one bin of its argument. Each is made
orthogonal to those of which right programs may have a little: gain and scale to each other, the
bins of exp to both.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.oracle.reference import stages_in_float64

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.oracle.reference import Reference

FRACTIONS = 8  # bins of the fraction of the exponent in base 2
DISTANCES = (0.25, 0.75, 1.5, 2.5, 4.0, 6.0, 9.0)  # edges of bins of the exponent
GAIN, SCALE = "gain", "scale"
FRACTION_BINS = tuple(
    f"where the exponent in base 2 has a fraction between {i / FRACTIONS} and {(i + 1) / FRACTIONS}"
    for i in range(FRACTIONS)
)
DISTANCE_BINS = tuple(
    f"of arguments between {-high:g} and {-low:g}"
    for low, high in zip((0.0, *DISTANCES), (*DISTANCES, math.inf), strict=True)
)
DIRECTIONS = (GAIN, SCALE, *FRACTION_BINS, *DISTANCE_BINS)
MAX_WEIGHTS = 6000  # weights: in larger problems the bins of exp are left out, to stay cheap
NOTHING_LEFT = 1e-6  # of a squared length: what is less after projections is rounding


def project_error(problem: Problem, reference: Reference, error: Array) -> tuple[Array, Array]:
    """Return <e, g> and <g, g> of an error e, (N, H, L, Dv), and each direction g, (H, K) both.

    K is that of ``DIRECTIONS``, or 2 in large problems; H is 1 where heads are mixed.
    """
    found = _directions(problem, reference)
    groups, count = found.shape[1:3]
    rows = found.transpose(1, 2, 0, 3, 4).reshape(groups, count, -1)
    products = rows @ rows.swapaxes(1, 2)
    combined = _orthogonalised(products)
    pushed = combined @ (rows @ error.swapaxes(0, 1).reshape(groups, -1, 1))
    return pushed[..., 0], np.maximum(_lengths(combined, products), 0)


def _directions(problem: Problem, reference: Reference) -> Array:
    """Return how the output moves, (N, H, K, L, Dv), or (N, 1, K, L, E) where heads are mixed.

    Weights p moved by relative amounts t move the heads by sum_j p_j t_j (v_j - o).
    """
    stages = stages_in_float64(reference)
    p, heads, v = (rows.astype(np.float64) for rows in (stages.weights, stages.heads, stages.v))
    seen = np.isfinite(heads).all(axis=-1, keepdims=True) & np.isfinite(p).all(-1, keepdims=True)
    p, heads = np.where(seen, p, 0), np.where(seen, heads, 0)
    moved = p[:, :, None] * weight_moves(problem, stages.logits, p)  # (N, H, K - 1, L, S')
    pushed = moved @ v[:, :, None] - moved.sum(axis=-1, keepdims=True) * heads[:, :, None]
    found = np.concatenate((heads[:, :, None], pushed), axis=2)
    if problem.w_out is not None:
        count, width = heads.shape[1], heads.shape[3]
        weight = problem.w_out.astype(np.float64).reshape(-1, count, width)  # (E, H, Dv)
        found = (found @ weight.transpose(1, 2, 0)[:, None]).sum(axis=1, keepdims=True)
    return np.asarray(found)


# Orthogonal directions are combinations of the found ones, (H, K, K): a row for each, with
# inner products from those of the found ones. No array of the output's size is touched again.


def _lengths(combined: Array, products: Array) -> Array:
    """Return the squared lengths of combinations, (H, K)."""
    return np.asarray((combined @ products * combined).sum(axis=-1))


def _without(rest: Array, other: Array, products: Array) -> Array:
    """Return combinations less their part along another, one for each head."""
    towards = products @ other.swapaxes(1, 2)  # (H, K, 1)
    length = other @ towards
    left = rest - rest @ towards / np.where(length > 0, length, np.inf) * other
    kept = _lengths(left, products) > NOTHING_LEFT * _lengths(rest, products)
    return np.asarray(np.where(kept[:, :, None], left, 0))


def _orthogonalised(products: Array) -> Array:
    """Take gain and scale from each other, and the rest from both."""
    one = np.broadcast_to(np.eye(products.shape[-1]), products.shape)
    gain, scale, rest = one[:, :1], one[:, 1:2], one[:, 2:]
    pure = _without(scale, gain, products)
    rest = _without(_without(rest, gain, products), pure, products)
    return np.concatenate((_without(gain, scale, products), pure, rest), axis=1)


def weight_moves(problem: Problem, logits: Array, p: Array) -> Array:
    """Return the suspected relative moves of the weights, (N, H, K - 1, L, S')."""
    logits = logits.astype(np.float64)
    usable = (p > 0) & np.isfinite(logits)
    logits = np.where(usable, logits, 0)
    floats = any(
        mask is not None and mask.dtype != np.bool_
        for mask in (problem.attn_mask, problem.key_padding_mask)
    )
    scores = np.where(usable, logits - problem.additive(), 0) if floats else logits
    scores = scores[:, :, None]
    if p.size > MAX_WEIGHTS:
        return scores
    highest = np.where(usable, logits, -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
    distance = np.where(usable, np.where(np.isfinite(highest), highest, 0) - logits, 0)
    exponent = -distance * math.log2(math.e)
    fraction = np.minimum((exponent - np.floor(exponent)) * FRACTIONS, FRACTIONS - 1).astype(int)
    depth = np.searchsorted(DISTANCES, distance)
    # exp(0) is exact in every program: the largest weight is in no bin.
    inside = (usable & (distance > 0))[:, :, None]
    bins = np.arange(FRACTIONS)[:, None, None] == fraction[:, :, None]
    depths = np.arange(len(DISTANCES) + 1)[:, None, None] == depth[:, :, None]
    return np.concatenate((scores, bins & inside, depths & inside), axis=2)
