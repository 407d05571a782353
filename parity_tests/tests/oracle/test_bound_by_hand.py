"""The a-priori bound equals its formulas, written out for one row in loops over numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.arrays import Array, merge_heads, split_heads
from mha_parity.core.case import parse
from mha_parity.core.problem import Problem
from mha_parity.oracle.error_bound import bound
from mha_parity.oracle.reference import Reference, reference_answer, stages_in_float64
from mha_torch.plain import Stages

# Of each dtype: the roundoff of its numbers, that of its sums, its smallest number.
MACHINES = {
    "float64": (2.0**-53, 2.0**-53, 2.0**-1022),
    "float32": (2.0**-24, 2.0**-24, 2.0**-126),
    "float16": (2.0**-11, 2.0**-24, 2.0**-24),
    "bfloat16": (2.0**-8, 2.0**-24, 2.0**-126),
}
LAYER = "mha-N2-L3-S4-H2-D2-cross-bias-outproj"
IDS = (
    f"{LAYER}-floatpadding-floatmask3d-float32-s11",
    f"{LAYER}-biaskv-zeroattn-padding-boolmask-float64-peaky-s12",
    f"{LAYER}-floatpadding-floatmask-float16-s13",
    f"{LAYER}-biaskv-floatmask-bfloat16-peaky-s14",
    f"{LAYER}-float32-subnormal-s15",
    f"{LAYER}-causal-float32-huge-s16",
    f"{LAYER}-float32-rising-s17",
    "mha-N1-L3-S3-H2-D3-boolmask3d-maskedrows-float32-s18",
    "qkv-N2-L3-S4-H4-D2-G2-V3-cross-floatmask3d-scaled-float32-s19",
    "qkv-N1-L2-S12-H1-D3-cross-float16-rising-s20",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Machine:
    """The numbers of a dtype, and the form of the bound."""

    unit: float
    sums: float
    step: float
    probabilistic: bool

    def gamma(self, count: float, unit: float) -> float:
        """Bound ``count`` factors 1 + e."""
        if self.probabilistic:
            return math.expm1(4 * math.sqrt(count) * unit + count * unit**2 / (1 - unit))
        return count * unit / (1 - count * unit)

    def error_factor(self, terms: float, roundings: float) -> float:
        """Bound a sum's factors, and those of roundings to the dtype after it."""
        if self.sums == self.unit:
            return self.gamma(terms + roundings, self.unit)
        return (1 + self.gamma(terms + roundings, self.sums)) * (
            1 + self.gamma(roundings, self.unit)
        ) - 1

    def lost(self, number: float) -> float:
        """Return what is lost of a number that a product may read as 0."""
        return number if number < self.step else 0.0

    def dot(self, left: Any, right: Any, added: float) -> float:
        """Bound the error of an inner product of exact magnitudes and one more term."""
        pairs = list(zip(left, right, strict=True))
        reach = sum(a * b for a, b in pairs) + added
        zeros = sum(self.lost(a) * b + a * self.lost(b) for a, b in pairs)
        return float(self.error_factor(len(pairs) + 1, 2) * reach + zeros + self.step)


def size(array: Array) -> Array:
    """Return magnitudes in float64."""
    return np.asarray(np.abs(array.astype(np.float64)))


def projection(problem: Problem, which: str, rows: Array, machine: Machine) -> Array:
    """Return the errors of q, k or v: inner products of inputs; what is appended is exact."""
    weight, bias = getattr(problem, f"w_{which}"), getattr(problem, f"b_{which}")
    if weight is None:
        return np.asarray(np.vectorize(machine.lost)(size(rows)))
    inputs = size(getattr(problem, {"q": "query", "k": "key", "v": "value"}[which]))
    error = np.zeros((*inputs.shape[:2], len(weight)))
    for sample, row, column in np.ndindex(error.shape):
        added = 0.0 if bias is None else float(size(bias)[column])
        error[sample, row, column] = machine.dot(inputs[sample, row], size(weight)[column], added)
    heads = split_heads(error, problem.num_heads)
    found = np.zeros(rows.shape)
    found[:, :, : heads.shape[2]] = heads
    return found


def masks(problem: Problem) -> list[Array]:
    """Return the magnitudes of each float mask where it is finite, in the shape of the scores."""
    alone = (problem.replace(attn_mask=None), problem.replace(key_padding_mask=None))
    return [np.abs(each.additive()) for each in alone]


def exponents(problem: Problem, reference: Stages | Reference, errors: Any, m: Machine) -> Array:
    """Return how far each score may move: its inner product, the masks, maximum and exp."""
    q, k = size(reference.q), size(reference.k)
    dq, dk = errors
    added = masks(problem)
    found = np.zeros(reference.logits.shape)
    for n, h, i, j in np.ndindex(found.shape):
        score = float(reference.logits[n, h, i, j])
        if score == -math.inf:
            continue
        width = range(q.shape[-1])
        carried = sum(
            dq[n, h, i, d] * k[n, h, j, d] + (q[n, h, i, d] + dq[n, h, i, d]) * dk[n, h, j, d]
            for d in width
        )
        reach = sum(
            (q[n, h, i, d] + dq[n, h, i, d]) * (k[n, h, j, d] + dk[n, h, j, d]) for d in width
        )
        scale = abs(problem.scale)
        # Scale, change of base and masks: 9; stored are the scaled factors, score and masked score.
        error = scale * carried + m.error_factor(len(width) + 9, 10) * scale * reach
        error += sum(m.error_factor(len(width), 3) * float(mask[n, h, i, j]) for mask in added)
        distance = float(reference.logits[n, h, i].max()) - score
        error += m.error_factor(0, 1) * distance + m.error_factor(8, 1) + m.step
        found[n, h, i, j] = min(error, 600.0)
    return found


def by_hand(problem: Problem, reference: Stages | Reference, m: Machine) -> dict[str, Array]:
    """Return the bounds of output, weights, weights formed anew, and heads."""
    dq, dk, dv = (
        projection(problem, which, getattr(reference, which), m) for which in ("q", "k", "v")
    )
    eta = exponents(problem, reference, (dq, dk), m)
    p, logits = reference.weights.astype(np.float64), reference.logits.astype(np.float64)
    v, heads = reference.v.astype(np.float64), reference.heads.astype(np.float64)
    keys = p.shape[-1]
    weights, anew = np.full(p.shape, np.nan), np.full(p.shape, np.nan)
    d_heads = np.full(heads.shape, np.nan)
    maxima = [len(set(np.maximum.accumulate(row))) - 1 for row in logits.reshape(-1, keys)]
    steps = min(max(maxima) + 2, keys)
    for n, h, i in np.ndindex(p.shape[:3]):
        row = p[n, h, i]
        if np.isnan(row).any():
            continue
        moved = eta[n, h, i] + math.log(sum(row * np.exp(eta[n, h, i])))
        # The sum, its division, each rescaling of the maximum; log sum exp.
        own = m.error_factor(keys + 3 + 10 * steps, 4 + steps)
        logarithm = m.error_factor(3, 1) * (abs(logits[n, h, i].max()) + math.log(keys))
        own += math.expm1(min(logarithm, 600))
        more, less = row * np.exp(np.minimum(moved, 600)), -row * np.expm1(-moved)
        dp = np.maximum(np.minimum(more, 1) - row, less)
        free = np.maximum(more - row, less)
        weights[n, h, i] = np.minimum(dp + own * (row + dp), 1 + own) + m.step
        anew[n, h, i] = free + own * (row + free) + m.step
        for d in range(v.shape[-1]):
            column, error = v[n, h, :, d], dv[n, h, :, d]
            centre = np.nanmean(heads[n, h, :, d])
            d_heads[n, h, i, d] = sum(
                dp[j] * abs(column[j] - centre)
                + (row[j] + dp[j]) * (1 + own) * error[j]
                + own * (row[j] + dp[j]) * (abs(column[j]) + error[j])
                + m.step * abs(column[j])
                for j in range(keys)
            ) + m.step  # fmt: skip
    output = _output(problem, heads, d_heads, m)
    return {"output": output, "weights": weights, "recomputed": anew, "heads": d_heads}


def _output(problem: Problem, heads: Array, error: Array, m: Machine) -> Array:
    """Carry the errors of the heads through the output projection."""
    rows, error = merge_heads(size(heads)), merge_heads(error)
    if problem.w_out is None:
        return error
    found = np.zeros(problem.output_shape)
    for n, i, e in np.ndindex(found.shape):
        weight = size(problem.w_out)[e]
        added = 0.0 if problem.b_out is None else float(size(problem.b_out)[e])
        found[n, i, e] = error[n, i] @ weight + m.dot(rows[n, i] + error[n, i], weight, added)
    return found


@pytest.mark.parametrize("probabilistic", [False, True], ids=["sure", "probable"])
@pytest.mark.parametrize("case", IDS)
def test_the_bound_is_its_formulas(case: str, probabilistic: bool) -> None:
    """Each term, once: kills another count of roundings, another sign, axis or part left out."""
    problem = make_problem(parse(case))
    reference = reference_answer(problem)
    machine = Machine(*MACHINES[problem.case.dtype], probabilistic)
    with np.errstate(all="ignore"):
        expected = by_hand(problem, stages_in_float64(reference), machine)
    found = bound(problem, reference, probabilistic=probabilistic)
    assert np.isfinite(expected["output"]).any()
    # Of weights near 1 float64 leaves two digits of what their exponents move by.
    digits = 1e-2 if problem.case.dtype == "float64" else 1e-9
    for name, each in expected.items():
        actual = found.stages[3] if name == "heads" else getattr(found, name)
        np.testing.assert_allclose(actual, each, rtol=digits, err_msg=name)


def test_exponents_are_cut_where_exp_is_finite() -> None:
    """Scores of 3e8 may move by more than 600, and exp of twice that is infinite: both are cut.

    Kills another cut, or none.
    """
    problem = make_problem(parse("qkv-N1-L2-S3-H1-D3-cross-float32-s21")).replace(given_scale=2e8)
    reference = reference_answer(problem)
    found = bound(problem, reference)
    expected = by_hand(
        problem, stages_in_float64(reference), Machine(*MACHINES["float32"], probabilistic=False)
    )
    assert 600 < np.log(expected["recomputed"].max()) < 709
    for name in ("weights", "recomputed"):
        np.testing.assert_allclose(getattr(found, name), expected[name], rtol=1e-9)
