"""The gradients of a call in training, from which of its weights were dropped.

With P the weights, m = 0 or 1/(1 - p) each, G the cotangent of the heads and s the scale:

    dV = (m P)^T G,  dP = m * (G V^T),  dS = P * (dP - rowsum(P * dP)),  dq = s dS K
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.alike import differ, same
from mha_parity.making import cotangent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.candidate import Answer
    from mha_parity.problem import Problem
    from mha_parity.values import Array

NAME = "gradients with dropout"


def gradients(problem: Problem, answer: Answer, weights: Array, kept: Array) -> Iterator[str]:
    """Judge the gradients of query and value; ``kept`` is m. Both (N, H, L, S).

    The problem has an output projection of the identity, or none, and appends no keys.
    """
    apart = len({id(rows) for rows in (problem.query, problem.key, problem.value)}) == 3
    if answer.gradients is None or not apart or problem.appended:
        return
    for name, due in _due(problem, weights, kept).items():
        found = answer.gradients.get(name)
        if found is None or found.shape != due.shape:
            return
        wanted = due.astype(found.dtype)
        if not same(wanted, found):
            unlike = differ(wanted, found)
            yield f"{NAME}: {unlike} in the gradient of {name} from what the dropped weights give."
            return
    yield NAME


def _due(problem: Problem, weights: Array, kept: Array) -> dict[str, Array]:
    """Return the gradients of value and query in float64."""
    heads, groups = problem.num_heads, problem.num_heads // problem.num_kv_heads
    given = _split(cotangent(problem).astype(np.float64), heads)
    k, v = (
        np.repeat(_split(_projected(problem, name, which), problem.num_kv_heads), groups, axis=1)
        for name, which in (("key", "k"), ("value", "v"))
    )
    d_v = (kept * weights).swapaxes(-1, -2) @ given
    d_v = d_v.reshape(len(d_v), -1, groups, *d_v.shape[2:]).sum(axis=2)
    d_p = kept * (given @ v.swapaxes(-1, -2))
    d_scores = weights * (d_p - (weights * d_p).sum(axis=-1, keepdims=True))
    d_q = problem.scale * d_scores @ k
    return {"value": _back(d_v, problem.w_v), "query": _back(d_q, problem.w_q)}


def _projected(problem: Problem, name: str, which: str) -> Array:
    rows = getattr(problem, name).astype(np.float64)
    weight, bias = (getattr(problem, f"{kind}_{which}") for kind in ("w", "b"))
    rows = rows if weight is None else rows @ weight.astype(np.float64).T
    return np.asarray(rows if bias is None else rows + bias)


def _back(rows: Array, weight: Array | None) -> Array:
    """Return the gradient (N, T, E) of what was projected to heads (N, H, T, D)."""
    n, h, length, width = rows.shape
    merged = rows.swapaxes(1, 2).reshape(n, length, h * width)
    return merged if weight is None else merged @ weight.astype(np.float64)


def _split(rows: Array, heads: int) -> Array:
    n, length, width = rows.shape
    return rows.reshape(n, length, heads, width // heads).swapaxes(1, 2)
