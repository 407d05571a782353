r"""Probabilistic bound of the error of an output row, for roundings that scatter around 0.

The a-priori bound (``error_bound``) adds up magnitudes, as if all roundings had one sign; at a
width of 512 it is some 1e5 times the error of any order. Here each rounding of a product or of a
partial sum is u times its size times an independent d, |d| <= 1, of mean 0 (Higham & Mary, A new
approach to probabilistic rounding error analysis, 2019; Ipsen & Zhou, Probabilistic error analysis
for inner products, 2020). By Hoeffding's inequality a sum of weighted d's passes lambda times the
root of the sum of the squared weights with probability at most 2 exp(-lambda^2 / 2). Weights of the
first order, with o = sum_j p_j v_j, s the scale, R = |a||b|^T the magnitudes of a product:

- an inner product of n terms, in any order: u sqrt(n + r) R, since no partial sum passes R; a mask
  may be the first term of a score's, as in torch's ``baddbmm``;
- q_d moves o by s sum_j p_j (v_j - o) k_jd, its own deviation times that, summed over d in squares;
- a score has p_j (v_j - o) times that of k_j over d in squares and that of its own inner product;
- the output projection, as an inner product.

Not counted as scattering, since one constant is rounded for all or a library's function may lean
to one side: forming the scale, the change of base, the distance to the maximum, exp, log sum exp,
the masks. Nor are the sums over keys, p V and that of the weights: of equal keys all terms are
equal, and roundings of one sign (1.5 times the bound at 2,100 keys if they were counted so). All
these are added by magnitudes. Exponents that move by h leave e^(2h) for higher orders;
where h passes 1/8 there is no such bound: infinity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.arrays import split_heads
from mha_parity.oracle.error_bound import (
    EXP,
    LOGARITHM,
    MASKING,
    NORMALISING,
    RESCALE,
    error_model,
    roundoff,
)

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.oracle.reference import Reference

FAILURE = 1e-9  # the probability that some element of one right output passes it
COMMON = 5  # forming the scale (3), the change of base (2): the same for all scores
ELEMENTWISE = 4  # applying the scale, storing
LARGEST = 1 / 8  # exponents that move further are beyond the first order


def probable_error(problem: Problem, reference: Reference, sample: int, row: int) -> Array:
    """Return the bound for the outputs (H Dv or E) of one row, all of infinity where there is none.

    It holds for all rows of the case together but with probability ``FAILURE``.
    """
    with np.errstate(all="ignore"):
        found = _row(problem, reference, sample, row)
    return np.asarray(np.where(np.isfinite(found), found, np.inf))


@dataclass(frozen=True, slots=True)
class _Row:
    """Arrays that one output row is made of, in float64, and the deviations of its projections."""

    q: Array  # (H, D)
    k: Array  # (H, S, D)
    v: Array  # (H, S, Dv)
    p: Array  # (H, S), as are the scores and the masks
    logits: Array
    masked: Array
    sq: Array
    sk: Array
    sv: Array
    scale: float
    unit: float
    deviations: float  # how many standard deviations hold for all outputs together


@dataclass(frozen=True, slots=True)
class _Scores:
    """How far the scores of a row may move: (H, S) each, ``top`` (H, 1)."""

    own: Array  # the variance that keys and the product bring
    fixed: Array  # what is added by magnitudes
    moved: Array  # all together
    top: Array  # the largest score


def _row(problem: Problem, reference: Reference, sample: int, row: int) -> Array:
    parts = _parts(problem, reference, sample, row)
    scores = _scores(parts)
    most = float(np.where(parts.p > 0, scores.moved, 0).max(initial=0))
    if most > LARGEST:
        return np.full(reference.output.shape[-1], np.inf)
    out, columns = None, parts.v
    if problem.w_out is not None:
        out = problem.w_out.astype(np.float64).reshape(len(problem.w_out), len(parts.v), -1)
        columns = np.einsum("hsd,ehd->hse", parts.v, out)
    random, worst = _heads(parts, scores, columns, most, out)
    step = error_model(problem.dtype).step * (1 + abs(columns).sum())
    if out is not None:
        inner = np.einsum("hs,hsd->hd", parts.p, parts.v)
        total = np.einsum("hd,ehd->e", abs(inner), abs(out))
        bias = 0 if problem.b_out is None else abs(problem.b_out.astype(np.float64))
        width = len(parts.v) * parts.v.shape[-1]
        last = parts.unit * math.sqrt(width + ELEMENTWISE) * (total + bias)
        random = random + last**2
    return np.asarray((parts.deviations * np.sqrt(random) + worst) * math.exp(2 * most) + step)


def _parts(problem: Problem, reference: Reference, sample: int, row: int) -> _Row:
    q, k, v, p, logits = (
        each.astype(np.float64)
        for each in (
            reference.q[sample, :, row],
            reference.k[sample],
            reference.v[sample],
            reference.weights[sample, :, row],
            reference.logits[sample, :, row],
        )
    )
    sq, sk, sv = (_projected(problem, which, sample) for which in "qkv")
    sq = sq[:, row] if sq.size else np.zeros(q.shape)
    sk, sv = (_appended(s, rows) for s, rows in ((sk, k), (sv, v)))
    masked = _masked(problem, sample, row, logits.shape)
    unit, count = roundoff(problem.dtype), max(reference.output.size, 1)
    deviations = math.sqrt(2 * math.log(2 * count / FAILURE))
    scale = abs(problem.scale)
    return _Row(q, k, v, p, logits, masked, sq, sk, sv, scale, unit, deviations)


def _scores(parts: _Row) -> _Scores:
    q, k, scale, unit = parts.q, parts.k, parts.scale, parts.unit
    reach = scale * np.einsum("hd,hsd->hs", abs(q), abs(k)) + parts.masked
    own = (unit * math.sqrt(q.shape[-1] + ELEMENTWISE) * reach) ** 2
    own += scale**2 * np.einsum("hd,hsd->hs", q**2, parts.sk**2)
    of_q = scale**2 * np.einsum("hd,hsd->hs", parts.sq**2, k**2)
    plain = scale * abs(np.einsum("hd,hsd->hs", q, k))
    seen = np.isfinite(parts.logits)
    top = np.where(seen, parts.logits, -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
    fixed = unit * (COMMON * plain + (MASKING + 1) * parts.masked + (top - parts.logits) + EXP)
    fixed = np.where(seen, fixed, 0)
    moved = np.where(seen, parts.deviations * np.sqrt(own + of_q) + fixed, 0)
    return _Scores(own, fixed, moved, top)


def _heads(
    parts: _Row, scores: _Scores, columns: Array, most: float, out: Array | None
) -> tuple[Array, Array]:
    """Return variance and magnitudes that the heads bring, by output: (H Dv), or (E) with W_out."""
    p, v, unit, keys = parts.p, parts.v, parts.unit, parts.k.shape[1]
    heads = np.einsum("hs,hsc->hc", p, columns)
    away = p[..., None] * (columns - heads[:, None])
    squares = parts.scale**2 * np.einsum(
        "hd,hdc->hc", parts.sq**2, np.einsum("hsc,hsd->hdc", away, parts.k) ** 2
    )
    squares += np.einsum("hs,hsc->hc", scores.own, away**2)
    terms = keys + NORMALISING + RESCALE * min(keys, 8)
    made = np.einsum("hs,hsd->hd", p**2, parts.sv**2)
    summed = unit * terms * np.einsum("hs,hsd->hd", p, abs(v))
    logarithm = unit * LOGARITHM * (abs(scores.top) + math.log(max(keys, 1)))
    exponents = scores.fixed + scores.moved**2 * math.exp(2 * most)
    sure = np.einsum("hs,hsc->hc", exponents, abs(away)) + (logarithm + unit * terms) * abs(heads)
    if out is None:
        return (squares + made).ravel(), (sure + summed).ravel()
    return (
        squares.sum(0) + np.einsum("hd,ehd->e", made, out**2),
        sure.sum(0) + np.einsum("hd,ehd->e", summed, abs(out)),
    )


def _projected(problem: Problem, which: str, sample: int) -> Array:
    """Return the deviation of a sample's projection, (H, rows, D); empty where there is none."""
    weight, bias = getattr(problem, f"w_{which}"), getattr(problem, f"b_{which}")
    if weight is None:
        return np.zeros((0, 0, 0))
    inputs = getattr(problem, {"q": "query", "k": "key", "v": "value"}[which])[sample]
    reach = abs(inputs.astype(np.float64)) @ abs(weight.astype(np.float64)).T
    if bias is not None:
        reach = reach + abs(bias.astype(np.float64))
    deviation = roundoff(problem.dtype) * math.sqrt(weight.shape[-1] + ELEMENTWISE) * reach
    heads = split_heads(deviation[None], problem.num_heads)  # layers repeat grouped heads
    return np.asarray(heads[0])


def _masked(problem: Problem, sample: int, row: int, shape: tuple[int, ...]) -> Array:
    """Return the magnitudes of all float masks of a row, (H, S')."""
    total = np.zeros(shape)
    for mask, other in (("attn_mask", "key_padding_mask"), ("key_padding_mask", "attn_mask")):
        if getattr(problem, mask) is not None:
            alone = np.abs(problem.replace(**{other: None}).additive())
            whole = np.broadcast_to(alone, problem.weights_shape)[sample, :, row]
            total += np.where(np.isfinite(whole), whole, 0)
    return total


def _appended(deviation: Array, rows: Array) -> Array:
    """Return the deviation of all keys or values: those that are appended or given are exact."""
    if not deviation.size:
        return np.zeros(rows.shape)
    repeated = np.repeat(deviation, len(rows) // len(deviation), axis=0)
    return np.pad(repeated, [(0, 0), (0, rows.shape[1] - repeated.shape[1]), (0, 0)])
