"""The probabilistic bound of a row equals its formulas, written out in loops over numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.arrays import Array
from mha_parity.core.case import parse
from mha_parity.core.problem import Problem
from mha_parity.oracle.error_bound import roundoff, smallest_number
from mha_parity.oracle.probable_error import probable_error
from mha_parity.oracle.reference import Reference, reference_answer

SCALE_OF_AN_EIGHTH = 25736.0  # its scores may move by 1/8
LAYER = "mha-N2-L3-S4-H2-D3-cross-bias"
IDS = (
    f"{LAYER}-outproj-floatpadding-floatmask3d-float32-s11",
    f"{LAYER}-outproj-biaskv-zeroattn-padding-boolmask-float64-peaky-s12",
    f"{LAYER}-floatmask-float32-rising-s13",
    "mha-N1-L3-S3-H2-D2-outproj-causal-float32-s14",
    "qkv-N2-L3-S11-H4-D2-G2-V3-cross-floatmask3d-scaled-float32-s15",
)


def size(array: Array) -> Array:
    """Return magnitudes in float64."""
    return np.asarray(np.abs(array.astype(np.float64)))


def deviations(problem: Problem, which: str, sample: int, rows: Array) -> Array:
    """Return u sqrt(E + 4) (|x||W|^T + |b|) in heads; 0 for what is appended or given."""
    weight, bias = getattr(problem, f"w_{which}"), getattr(problem, f"b_{which}")
    found: Array = np.zeros(rows.shape)
    if weight is None:
        return found
    inputs = size(getattr(problem, {"q": "query", "k": "key", "v": "value"}[which])[sample])
    for h, i, d in np.ndindex(found.shape[0], len(inputs), found.shape[2]):
        column = h * found.shape[2] + d
        reach = sum(a * b for a, b in zip(inputs[i], size(weight)[column], strict=True))
        reach += 0 if bias is None else size(bias)[column]
        found[h, i, d] = roundoff(problem.dtype) * math.sqrt(weight.shape[1] + 4) * reach
    return found


def by_hand(problem: Problem, reference: Reference, n: int, i: int) -> tuple[Array, float]:
    """Return the bound of row ``i`` of sample ``n``, and how far a score of it may move."""
    u, scale = roundoff(problem.dtype), abs(problem.scale)
    q, k, v, p, logits = (
        getattr(reference, name).astype(np.float64)[n]
        for name in ("q", "k", "v", "weights", "logits")
    )
    dq, dk, dv = (deviations(problem, w, n, getattr(reference, w)[n]) for w in ("q", "k", "v"))
    heads, keys, width = k.shape
    out = np.eye(heads * v.shape[2]) if problem.w_out is None else problem.w_out.astype(np.float64)
    times = math.sqrt(2 * math.log(2 * reference.output.size / 1e-9))
    alone = (problem.replace(attn_mask=None), problem.replace(key_padding_mask=None))
    masks = size(alone[0].additive()) + size(alone[1].additive())
    parts = [
        [
            score(q[h, i], k[h, j], dq[h, i], dk[h, j], masks[n, h, i, j], scale, u)
            for j in range(keys)
        ]
        for h in range(heads)
    ]
    top = [max(logits[h, i]) for h in range(heads)]
    seen = [[j for j in range(keys) if logits[h, i, j] > -math.inf] for h in range(heads)]
    fixed = {
        (h, j): parts[h][j][2] + u * (top[h] - logits[h, i, j] + 8)
        for h in range(heads)
        for j in seen[h]
    }
    moved = {
        (h, j): times * math.sqrt(parts[h][j][0] + parts[h][j][1]) + fixed[h, j] for h, j in fixed
    }
    most = max(moved[h, j] for h, j in moved if p[h, i, j] > 0)
    terms = keys + 3 + 10 * min(keys, 8)
    found, magnitude = np.zeros(len(out)), 0.0
    for e in range(len(out)):
        variance = sure = whole = 0.0
        for h in range(heads):
            columns = out[e].reshape(heads, -1)[h]
            value = v[h] @ columns
            head = sum(p[h, i] * value)
            magnitude += sum(abs(value))
            whole += sum(abs(p[h, i] @ v[h]) * abs(columns))
            away = p[h, i] * (value - head)
            for d in range(width):
                variance += (scale * dq[h, i, d] * sum(away * k[h, :, d])) ** 2
            for c, column in enumerate(columns):
                variance += sum((p[h, i] * dv[h, :, c] * column) ** 2)
                sure += u * terms * sum(p[h, i] * abs(v[h, :, c])) * abs(column)
            for j in seen[h]:
                variance += parts[h][j][0] * away[j] ** 2
                sure += (fixed[h, j] + moved[h, j] ** 2 * math.exp(2 * most)) * abs(away[j])
            sure += u * (3 * (abs(top[h]) + math.log(keys)) + terms) * abs(head)
        if problem.w_out is not None:
            bias = 0 if problem.b_out is None else abs(float(problem.b_out[e]))
            variance += (u * math.sqrt(heads * v.shape[2] + 4) * (whole + bias)) ** 2
        found[e] = (times * math.sqrt(variance) + sure) * math.exp(2 * most)
    return found + smallest_number(problem.dtype) * (1 + magnitude), most


def score(q: Any, k: Any, dq: Any, dk: Any, mask: float, scale: float, u: float) -> Any:
    """Return a score's variances by its key and product and by its query, and what is fixed."""
    pairs = list(zip(q, k, dq, dk, strict=True))
    reach = scale * sum(abs(a * b) for a, b, _, _ in pairs) + mask
    own = (u * math.sqrt(len(q) + 4) * reach) ** 2 + scale**2 * sum(
        (a * b) ** 2 for a, _, _, b in pairs
    )
    of_q = scale**2 * sum((a * b) ** 2 for _, b, a, _ in pairs)
    # The scale and the change of base are one number for all: the score moves, not its terms.
    return own, of_q, u * (5 * scale * abs(sum(a * b for a, b, _, _ in pairs)) + 3 * mask)


@pytest.mark.parametrize("case", IDS)
def test_the_probable_error_is_its_formulas(case: str) -> None:
    """Each term, once: kills another power, count of roundings, axis, or a part left out."""
    problem = make_problem(parse(case))
    reference = reference_answer(problem)
    for sample, row, _ in np.argwhere(np.isfinite(reference.output))[:: reference.output.shape[2]]:
        expected, _ = by_hand(problem, reference, int(sample), int(row))
        found = probable_error(problem, reference, int(sample), int(row))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_products_next_to_0_are_off_by_the_smallest_number() -> None:
    """Of values near 2^-100 in float32 the smallest number is a part of the bound that shows."""
    problem = make_problem(parse("qkv-N1-L2-S3-H2-D2-cross-float32-s16"))
    problem = problem.replace(value=problem.value * np.float32(2.0**-100))
    reference = reference_answer(problem)
    expected, _ = by_hand(problem, reference, 0, 1)
    assert (smallest_number(problem.dtype) > 1e-3 * expected).all()
    np.testing.assert_allclose(probable_error(problem, reference, 0, 1), expected, rtol=1e-9)


def test_there_is_no_bound_where_a_score_may_move_by_more_than_an_eighth() -> None:
    """Scales in steps of 2 % about it: kills another limit, and weights of 0 that are asked too."""
    problem = make_problem(parse("qkv-N1-L2-S3-H1-D2-cross-float32-s17"))
    reached = []
    for step in range(-5, 6):
        scaled = problem.replace(given_scale=SCALE_OF_AN_EIGHTH * 1.02**step)
        reference = reference_answer(scaled)
        _, most = by_hand(scaled, reference, 0, 0)
        reached.append(most)
        assert (most <= 1 / 8) == np.isfinite(probable_error(scaled, reference, 0, 0)).all()
    assert 0.11 < min(reached) < 1 / 8 < max(reached) < 0.14
