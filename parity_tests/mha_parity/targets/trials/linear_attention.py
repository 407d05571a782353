"""Whether a target has no scores: a function of queries alone times one of keys alone.

Linear attention, phi(q) psi(k)^T v, takes one softmax of queries and another of keys, or a feature
map of each. The weights of L > D queries then have rank D, which a softmax over scores exceeds.
Those of a softmax that was forgotten have rank D too, and grow with the queries: that is a bug.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import ADAPTER, CandidateError
from mha_parity.core.head_projections import PROJECTIONS

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

HEAD_DIM = 8  # of a trial, which has fewer channels in a head than queries and keys
LENGTH = 13
SINGLE = np.eye(LENGTH)
COMBINED = np.array([[2.0, 1.0, *np.zeros(LENGTH - 2)]])  # of values, twice the first
FACTOR = 3.0  # by which queries are larger: a product of rows would be so, too


def has_separate_kernels(bound: Convention) -> bool:
    """Return whether every head's weights have rank D, and are no multiples of the queries.

    They are measured: one key after the other has a value of 1, the rest 0; what values of 0 give,
    as an input that is added, is taken off. What is not linear in its values has no weights.
    """
    case = bound.trial_case().replace(batch=1, queries=LENGTH, keys=LENGTH, head_dim=HEAD_DIM)
    if case.dtype not in {"float64", "float32"}:
        return False  # rounding of fewer digits raises the rank
    if case.projection in PROJECTIONS:
        return False  # a head's own D channels hold no value for each of more keys
    try:
        problem = make_problem(case)
        # Values of one key alone need as many channels as keys; such lengths may not be taken.
        few = problem.w_v is not None and problem.value.shape[-1] < LENGTH
        if few or problem.case.keys != LENGTH:
            return False
        weights = _weights(bound, problem)
        combined = _weights(bound, problem, COMBINED)[..., 0]
        larger = _weights(bound, _with_larger_queries(problem))
    except CandidateError:
        return False
    precision = float(np.sqrt(np.finfo(np.float64 if case.dtype == "float64" else np.float32).eps))
    if not _are_close(combined, 2 * weights[..., 0] + weights[..., 1], precision):
        return False
    values = np.linalg.svd(weights, compute_uv=False)
    ranks = (values > precision * values[:, :1]).sum(axis=-1)
    return bool((ranks == HEAD_DIM).all()) and not _are_multiples(larger, weights, precision)


def separate_kernels(name: str) -> str:
    """Return the refusal of what has no scores."""
    return (
        f"got {name}, but it multiplies a function of the queries alone by one of the keys alone, "
        f"as linear attention does (weights of {LENGTH} queries have rank {HEAD_DIM}, the width of "
        "a head): a softmax that is not taken over scores has no counterpart in torch's layer; "
        f"take softmax(q k^T / sqrt(head_dim)), or {ADAPTER}."
    )


def _weights(bound: Convention, problem: Problem, values: Array = SINGLE) -> Array:
    """Return the weights (H, L, S) of a target in float64, or sums of these."""
    added = _mixed(bound, problem, np.zeros(LENGTH))
    return np.stack([_mixed(bound, problem, row) - added for row in values], axis=-1)


def _mixed(bound: Convention, problem: Problem, values: Array) -> Array:
    """Return what each head (H, L) makes of values (S,), which all its channels have."""
    if problem.w_v is None:
        rows = np.broadcast_to(values[:, None], problem.value.shape)
        problem = problem.replace(value=np.ascontiguousarray(rows, problem.dtype))
    else:
        column = np.linalg.pinv(problem.value[0].astype(np.float64)) @ values
        w_v = np.tile(column, (problem.w_v.shape[0], 1)).astype(problem.dtype)
        problem = problem.replace(w_v=w_v)
    output = bound(problem).output
    if output.shape != problem.output_shape or not np.isfinite(output).all():
        raise CandidateError("structure", "gave no finite output of the right shape.")
    return output[0, :, :: problem.v_head_dim].T.astype(np.float64)


def _with_larger_queries(problem: Problem) -> Problem:
    factor = problem.dtype.type(FACTOR)
    if problem.w_q is None:
        return problem.replace(query=problem.query * factor)
    return problem.replace(w_q=problem.w_q * factor)


def _are_close(actual: Array, expected: Array, precision: float) -> bool:
    return bool(np.abs(actual - expected).max() <= precision * np.abs(expected).max())


def _are_multiples(larger: Array, weights: Array, precision: float) -> bool:
    """Return whether each row of weights is a multiple of what it was."""
    factors = (larger * weights).sum(-1, keepdims=True) / (weights**2).sum(-1, keepdims=True)
    return _are_close(larger, factors * weights, precision)
