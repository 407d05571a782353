r"""A-priori bound of the rounding error of one attention, in any right order of evaluation.

Standard model (Higham, Accuracy and Stability of Numerical Algorithms, 2002, chapters 2 and 3): an
operation returns its exact result times 1 + e, |e| <= u; n such factors stay within 1 +- gamma_n,
gamma_n = n u / (1 - n u); a sum of n products, in any order, with or without fused multiply-add, is
off by at most gamma_n sum |a_i||b_i|. Errors made earlier are carried on by magnitudes:

- projections: dq <= gamma_{E+1} (|x||W|^T + |b|), likewise dk, dv. Appended keys are exact.
- scores: dl <= s (dq |k|^T + (|q| + dq) dk^T) + gamma_{D+9} s (|q| + dq)(|k| + dk)^T
  + gamma_{D+3} |m|; 9 = forming the scale (3), applying it to one or both factors (2), the change
  to base 2 (2), the masks' sum, the sum with the masks. A mask may be the first term of a score,
  to which D products are added, as in torch's `baddbmm`.
- exponents: eta_j = dl_j + gamma_1 (max_i l_i - l_j) + gamma_8: the subtraction of a maximum, be it
  in one step or in the many of an online softmax (their differences add up to the same distance),
  and an exp good to 4 units in the last place.
- weights (Blanchard, Higham & Higham, Accurately computing the log-sum-exp and softmax functions,
  2021, in the form for unlike errors): softmax forgets a common shift, so with
  Z = sum_i p_i exp(eta_i) the weight p_j stays between p_j / (exp(eta_j) Z) and p_j exp(eta_j) Z.
- log-sum-exp: log sum_i p_i exp(eta_i) =: log Z by the exponents (by Jensen's inequality no less in
  the other direction), and -log(1 - e) for an error e of normalising, which has its logarithm.
- normalising: gamma_n, n = S' for the sum, 3 for the division, 10 for each rescaling of an online
  softmax (exp and product), of which a row has no more than its running maximum has steps, and one
  for joining parts; and gamma_4 (max_i |l_i| + log S') for programs that write
  exp(l - log sum exp l), whose logarithm is rounded at that size, in 16 bits to the dtype too.
- heads: perturbed weights still sum to 1, so (dp |v - c|) for any row c: c is the mean head. Then
  (p + dp) dv + gamma (p + dp)(|v| + dv).
- output: as the projections.

float16 and bfloat16: sums are taken to be in float32 (as every kernel known to us does), and every
stage's result to be rounded to the dtype once; sums in 16 bits throughout are judged by an order
that does the same (`orders.NARROW`), because their bound says nothing after a hundred terms.

The *probabilistic* form (Higham & Mary, A new approach to probabilistic rounding error analysis,
2019) has exp(lambda sqrt(n) u + n u^2 / (1 - u)) - 1 in place of gamma_n. It holds with high
probability for errors that scatter around 0; it informs, and decides nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from mha_parity.core.arrays import merge_heads, split_heads
from mha_parity.oracle.reference import stages_in_float64
from mha_parity.oracle.torch_answers import kept_result

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.oracle.reference import Reference
    from mha_torch.plain import Stages

SCALING = 7  # forming the scale, applying it, the change of base
MASKING = 2
EXP = 8  # 4 units in the last place
RESCALE = EXP + 2
NORMALISING = 3
LOGARITHM = 3
LAMBDA = 4.0  # each sum passes the probabilistic form with probability below 2 exp(-8) = 7e-4
LIMIT = 600.0  # exponents are cut here: exp stays finite, and a weight can reach 1 long before


@dataclass(frozen=True, slots=True)
class ErrorModel:
    """The machine: roundoff of the dtype, roundoff of its sums, the smallest step above 0."""

    unit: float
    sums: float
    step: float
    probabilistic: bool = False

    def error_factor(self, terms: float, roundings: float) -> float:
        """Bound ``terms`` factors 1 + e of a sum, and ``roundings`` to the dtype after it."""
        if self.unit == self.sums:
            return self._gamma(terms + roundings, self.unit)
        summed, stored = (
            self._gamma(terms + roundings, self.sums),
            self._gamma(roundings, self.unit),
        )
        return summed + stored + summed * stored

    def _gamma(self, terms: float, unit: float) -> float:
        if self.probabilistic:
            exponent = LAMBDA * math.sqrt(terms) * unit + terms * unit**2 / (1 - unit)
            return math.expm1(min(exponent, LIMIT))
        return terms * unit / (1 - terms * unit) if terms * unit < 1 else math.inf


def roundoff(dtype: np.dtype[np.generic]) -> float:
    """Return u, half the distance from 1 to the next number of the dtype."""
    return _finfo(dtype)[0] / 2


def smallest_number(dtype: np.dtype[np.generic]) -> float:
    """Return the smallest number above 0 that every machine has: normal, in float16 subnormal."""
    return _finfo(dtype)[1]


@cache
def _finfo(dtype: np.dtype[np.generic]) -> tuple[float, float]:
    if dtype.name == "bfloat16":
        return 2.0**-7, 2.0**-126
    info = np.finfo(dtype.name)
    tiny = info.smallest_subnormal if dtype == np.float16 else info.smallest_normal
    return float(info.eps), float(tiny)


@dataclass(frozen=True, eq=False, slots=True)
class ErrorBound:
    """The largest errors that rounding explains, element by element, in float64.

    ``stages``: those of q, k, v and the heads, (N, H, ..., D). ``recomputed``: those of weights
    that a backward pass forms anew from rounded scores and what the forward pass kept of each row:
    these do not sum to 1. ``log_sum_exp`` is of each row, (N, H, L).
    """

    output: Array
    weights: Array
    log_sum_exp: Array
    recomputed: Array
    stages: tuple[Array, Array, Array, Array]


def bound(problem: Problem, reference: Reference, *, probabilistic: bool = False) -> ErrorBound:
    """Return the bound for answers in the problem's dtype. Rows without a key are NaN."""
    if not probabilistic and reference in _KEPT:
        return _KEPT[reference]
    found = bound_with_model(
        error_model(problem.dtype, probabilistic=probabilistic), problem, reference
    )
    if not probabilistic:
        _KEPT[reference] = found
    return found


def output_bound(problem: Problem, reference: Reference) -> Array:
    """Return the bound of the output alone, which a record has."""
    return kept_result(BOUND, problem, lambda: {"output": bound(problem, reference).output})[
        "output"
    ]


BOUND = "bound"  # the kind of result of a record
# Judge, power and relations share it.
_KEPT: WeakKeyDictionary[Reference, ErrorBound] = WeakKeyDictionary()


def error_model(dtype: np.dtype[np.generic], *, probabilistic: bool = False) -> ErrorModel:
    """Return the arithmetic of a dtype: sums in float32 at least."""
    unit = roundoff(dtype)
    return ErrorModel(unit, min(unit, 2.0**-24), smallest_number(dtype), probabilistic)


def bound_with_model(arithmetic: ErrorModel, problem: Problem, reference: Reference) -> ErrorBound:
    """Return the bound for answers in some arithmetic, be it the problem's own or another."""
    with np.errstate(all="ignore"):
        return _bound(problem, reference, arithmetic)


def _bound(problem: Problem, reference: Reference, arithmetic: ErrorModel) -> ErrorBound:
    stages = stages_in_float64(reference)
    q, k, v = (np.abs(rows.astype(np.float64)) for rows in (stages.q, stages.k, stages.v))
    dq, dk, dv = (_projection(problem, which, rows, arithmetic) for which, rows in
                  (("q", q), ("k", k), ("v", v)))  # fmt: skip
    logits, p = stages.logits.astype(np.float64), stages.weights.astype(np.float64)
    shift = _shift(problem, logits, (q, k, dq, dk), arithmetic)
    moved = np.log((p * np.exp(shift)).sum(axis=-1, keepdims=True))
    dp, anew = _softmax(p, shift, moved)
    rescalings = min(_records(logits) + 2, logits.shape[-1])
    normalising = arithmetic.error_factor(
        logits.shape[-1] + NORMALISING + RESCALE * rescalings, 4 + rescalings
    ) + _logarithm(logits, arithmetic)
    weights = np.minimum(dp + normalising * (p + dp), 1 + normalising) + arithmetic.step
    recomputed = anew + normalising * (p + anew) + arithmetic.step
    heads = _heads(stages, (p, dp), dv, normalising)
    heads = heads + arithmetic.step * (1 + v.sum(-2, keepdims=True))
    reach = np.abs(stages.heads.astype(np.float64))
    output = output_error(problem, merge_heads(reach), merge_heads(heads), arithmetic)
    summed = -np.log1p(-np.minimum(normalising, 1))
    log_sum_exp = (moved + summed + arithmetic.step)[..., 0]
    return ErrorBound(output, weights, log_sum_exp, recomputed, (dq, dk, dv, heads))


def _projection(problem: Problem, which: str, rows: Array, arithmetic: ErrorModel) -> Array:
    """Bound the error of one projection, in the shape of its heads."""
    weight, bias = getattr(problem, f"w_{which}"), getattr(problem, f"b_{which}")
    if weight is None:
        return _read_as_zero(rows, arithmetic)
    inputs = _magnitude(getattr(problem, {"q": "query", "k": "key", "v": "value"}[which]))
    factor = _magnitude(weight).T
    reach = inputs @ factor
    if bias is not None:
        reach = reach + _magnitude(bias)
    error = arithmetic.error_factor(weight.shape[-1] + 1, 2) * reach
    error = error + _unread(inputs, factor, arithmetic)
    heads = split_heads(error + arithmetic.step, problem.num_heads)
    appended = rows.shape[2] - heads.shape[2]
    return np.pad(heads, [(0, 0), (0, 0), (0, appended), (0, 0)]) if appended else heads


def _unread(left: Array, right: Array, arithmetic: ErrorModel) -> Array:
    """Bound what a product of magnitudes loses that reads subnormal numbers as 0.

    So do the dot products of bfloat16 of AVX-512, and whatever sets the processor's DAZ flag.
    """
    lost = np.zeros(())
    if (below := _read_as_zero(left, arithmetic)).any():
        lost = lost + below @ right
    if (below := _read_as_zero(right, arithmetic)).any():
        lost = lost + left @ below
    return lost


def _read_as_zero(magnitude: Array, arithmetic: ErrorModel) -> Array:
    return np.where(magnitude < arithmetic.step, magnitude, 0)


def _magnitude(array: Array) -> Array:
    return np.abs(array.astype(np.float64))


def _shift(
    problem: Problem,
    logits: Array,
    factors: tuple[Array, Array, Array, Array],
    arithmetic: ErrorModel,
) -> Array:
    """Bound how far each exponent can move."""
    q, k, dq, dk = factors
    scale = abs(problem.scale)
    carried = scale * (_product(dq, k) + _product(q + dq, dk))
    reach = scale * _product(q, k) + carried
    error = carried + arithmetic.error_factor(q.shape[-1] + SCALING + MASKING, SCALING + 3) * reach
    for mask, other in (("attn_mask", "key_padding_mask"), ("key_padding_mask", "attn_mask")):
        if getattr(problem, mask) is not None:
            alone = np.abs(problem.replace(**{other: None}).additive())
            error = error + arithmetic.error_factor(q.shape[-1], MASKING + 1) * alone
    distance = logits.max(axis=-1, keepdims=True, initial=-np.inf) - logits
    moved = error + arithmetic.error_factor(0, 1) * distance + arithmetic.error_factor(EXP, 1)
    return np.asarray(
        np.where(np.isneginf(logits), 0.0, np.minimum(moved + arithmetic.step, LIMIT))
    )


def _product(left: Array, right: Array) -> Array:
    return np.asarray(np.matmul(left, right.swapaxes(-1, -2)))


def _softmax(p: Array, shift: Array, moved: Array) -> tuple[Array, Array]:
    """Bound the error of weights whose exponents move by up to ``shift``: at most 1, and else.

    ``moved``: how far that moves the log of the sum of the exponentials.
    """
    exponent = shift + moved
    most, less = p * np.exp(np.minimum(exponent, LIMIT)), -p * np.expm1(-exponent)
    return np.maximum(np.minimum(most, 1) - p, less), np.maximum(most - p, less)


def _records(logits: Array) -> int:
    """Return how often the running maximum of a row rises, in the row where it does most."""
    running = np.maximum.accumulate(logits, axis=-1)
    return int((running[..., 1:] > running[..., :-1]).sum(axis=-1).max(initial=0))


def _logarithm(logits: Array, arithmetic: ErrorModel) -> Array:
    """Bound what log sum exp costs where it is formed and subtracted, (N, H, L, 1)."""
    if not logits.shape[-1]:
        return np.zeros((1, 1, 1, 1))
    reach = np.abs(logits.max(axis=-1, keepdims=True)) + math.log(logits.shape[-1])
    return np.asarray(np.expm1(np.minimum(arithmetic.error_factor(LOGARITHM, 1) * reach, LIMIT)))


def _heads(
    stages: Stages | Reference, weights: tuple[Array, Array], dv: Array, normalising: Array
) -> Array:
    """Bound the error of the weights times the values."""
    p, dp = weights
    heads, v = stages.heads.astype(np.float64), stages.v.astype(np.float64)
    seen = np.isfinite(heads)
    centre = np.where(seen, heads, 0).sum(axis=2, keepdims=True)
    centre = centre / np.maximum(seen.sum(axis=2, keepdims=True), 1)
    largest = (p + dp) * (1 + normalising)
    return np.asarray(
        dp @ (np.abs(v - centre)) + largest @ dv + normalising * ((p + dp) @ (np.abs(v) + dv))
    )


def output_error(problem: Problem, heads: Array, error: Array, arithmetic: ErrorModel) -> Array:
    """Bound the error of the output projection, where there is one."""
    if problem.w_out is None:
        return error
    weight = _magnitude(problem.w_out).T
    reach = (heads + error) @ weight
    if problem.b_out is not None:
        reach = reach + _magnitude(problem.b_out)
    made = arithmetic.error_factor(len(weight) + 1, 2) * reach
    made = made + _unread(heads + error, weight, arithmetic)
    return np.asarray(error @ weight + made + arithmetic.step)
