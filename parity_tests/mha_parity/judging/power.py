"""Compute the power of a case: which junk answers and gross bugs it can show.

A case that could not tell the right answer from zeros proves nothing. Each of a fixed set of wrong
answers is computed from the reference's stages in float64; it is exposed where it differs from the
reference by more than the rounding bound allows any right attention to.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.arrays import merge_heads, softmax
from mha_parity.oracle.error_bound import bound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.oracle.reference import Reference


def exposed_errors(problem: Problem, reference: Reference) -> frozenset[str]:
    """Return which gross errors the case would expose at the tolerance in force."""
    if reference.output.size == 0 or reference.weights.size == 0:
        return frozenset()
    right = reference.output.astype(np.float64)
    with np.errstate(all="ignore"):
        allowed = bound(problem, reference).output
        seen = np.isfinite(right) & np.isfinite(allowed)
        found = {
            name
            for name, heads in _wrong(problem, reference)
            if _differs(_projected(problem, heads), right, allowed, seen)
        }
    return frozenset(found)


def _differs(wrong: Array, right: Array, allowed: Array, seen: Array) -> bool:
    """Return whether an answer fails: off by more than allowed, or no number where there is one.

    Or a number where there is infinity, which no order has.
    """
    differs = seen & ~(np.abs(wrong - right) <= allowed)
    return bool((differs | (np.isinf(right) & np.isfinite(wrong))).any())


def _wrong(problem: Problem, reference: Reference) -> Iterator[tuple[str, Array]]:
    """Yield the heads (N, H, L, Dv) of every wrong answer that the shapes admit."""
    q, k, v, p = (
        a.astype(np.float64) for a in (reference.q, reference.k, reference.v, reference.weights)
    )
    logits = reference.logits.astype(np.float64)
    raw = q @ k.swapaxes(-1, -2)
    masks = logits - problem.scale * raw
    visible = np.isfinite(logits)
    yield "zeros", np.zeros(reference.heads.shape)
    yield "mean of V", np.broadcast_to(v.mean(axis=2, keepdims=True), reference.heads.shape)
    yield "uniform weights", (visible / visible.sum(axis=-1, keepdims=True)) @ v
    yield "keys reversed", p @ v[:, :, ::-1]
    if raw.shape[-1] == raw.shape[-2]:
        yield "Q and K exchanged", softmax(problem.scale * raw.swapaxes(-1, -2) + masks) @ v
    yield "no scale", softmax(raw + masks) @ v
    model = problem.num_heads * problem.head_dim
    yield "scale 1/sqrt(d_model)", softmax(raw / math.sqrt(model) + masks) @ v
    yield "softmax over queries", softmax(logits, axis=-2) @ v


def _projected(problem: Problem, heads: Array) -> Array:
    """Return the output that the heads lead to."""
    output = merge_heads(heads)
    if problem.w_out is not None:
        output = output @ problem.w_out.astype(np.float64).T
    return output if problem.b_out is None else output + problem.b_out.astype(np.float64)
