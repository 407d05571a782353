"""Check the gradients of a call in training against those of its dropped weights.

With P the weights, m = 0 or 1/(1 - p) each, G the cotangent of the heads and s the scale:

    dV = (m P)^T G,  dP = m * (G V^T),  dS = P * (dP - rowsum(P * dP)),  dq = s dS K
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import cotangent
from mha_parity.core.arrays import merge_heads, split_heads
from mha_parity.core.compare import describe_difference, equal_up_to_rounding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem

NAME = "gradients with dropout"


def check_dropout_gradients(
    problem: Problem, answer: Answer, weights: Array, kept: Array
) -> Iterator[str]:
    """Yield the finding on the gradients of query and value; ``kept`` is m. Both (N, H, L, S).

    The problem has an output projection of the identity, or none, and appends no keys.
    """
    distinct = len({id(rows) for rows in (problem.query, problem.key, problem.value)}) == 3
    if answer.gradients is None or not distinct or problem.appended:
        return
    for name, right in _right_gradients(problem, weights, kept).items():
        actual = answer.gradients.get(name)
        if actual is None or actual.shape != right.shape:
            return
        expected = right.astype(actual.dtype)
        if not equal_up_to_rounding(expected, actual):
            difference = describe_difference(expected, actual)
            yield f"{NAME}: {difference} in the gradient of {name} from that of the kept weights."
            return
    yield NAME


def _right_gradients(problem: Problem, weights: Array, kept: Array) -> dict[str, Array]:
    """Return the gradients of value and query in float64."""
    heads, groups = problem.num_heads, problem.num_heads // problem.num_kv_heads
    d_heads = split_heads(cotangent(problem).astype(np.float64), heads)
    k, v = (
        np.repeat(
            split_heads(_projected(problem, name, which), problem.num_kv_heads), groups, axis=1
        )
        for name, which in (("key", "k"), ("value", "v"))
    )
    d_v = (kept * weights).swapaxes(-1, -2) @ d_heads
    d_v = d_v.reshape(len(d_v), -1, groups, *d_v.shape[2:]).sum(axis=2)
    d_p = kept * (d_heads @ v.swapaxes(-1, -2))
    d_scores = weights * (d_p - (weights * d_p).sum(axis=-1, keepdims=True))
    d_q = problem.scale * d_scores @ k
    return {
        "value": _input_gradient(d_v, problem.w_v),
        "query": _input_gradient(d_q, problem.w_q),
    }


def _projected(problem: Problem, name: str, which: str) -> Array:
    rows = getattr(problem, name).astype(np.float64)
    weight, bias = (getattr(problem, f"{kind}_{which}") for kind in ("w", "b"))
    rows = rows if weight is None else rows @ weight.astype(np.float64).T
    return np.asarray(rows if bias is None else rows + bias)


def _input_gradient(rows: Array, weight: Array | None) -> Array:
    """Return the gradient (N, T, E) of an input, from that of its heads (N, H, T, D)."""
    merged = merge_heads(rows)
    return merged if weight is None else merged @ weight.astype(np.float64)
