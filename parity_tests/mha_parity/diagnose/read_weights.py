"""Read attention weights out of an output: where V holds rows of the identity, P V shows P."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.cases.weight_readout import with_one_hot_values
from mha_parity.catalogue import Attention
from mha_parity.core import head_projections
from mha_parity.core.arrays import split_heads
from mha_parity.core.candidate import CandidateError
from mha_parity.core.case import Case
from mha_parity.core.compare import as_float64
from mha_parity.core.features import has_one_kv_head
from mha_parity.core.head_projections import PROJECTIONS
from mha_parity.core.target_facts import takes_one_length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer, Candidate
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem

    Answers = Callable[[Sequence[Problem]], Iterable[Answer | CandidateError]]

SEED = 77
CALLS = 16  # of the candidate, to read the weights of one sample
SOLVED = 0.01  # the largest error of projected values: a picture shows two digits
SIZES = {"batch": 2, "queries": 4, "keys": 5, "head_dim": 8}
# What reading costs: values that should be unit vectors come from a solved system of equations.
ATOL = {"float64": 1e-9, "float32": 1e-5, "float16": 3e-2, "bfloat16": 2e-1}


@dataclass(frozen=True, eq=False)
class WeightsReading:
    """Attention weights read from a candidate's output, and the right ones.

    Shapes (N, H, L, S); ``dots`` are the right q k^T without scale or masks.
    """

    problem: Problem
    weights: Array
    right: Array
    dots: Array

    @property
    def atol(self) -> float:
        """The tolerance in the problem's dtype."""
        return ATOL[self.problem.case.dtype]


def plain_case(offer: Offer, **changes: object) -> Case:
    """Return a small case of the plainest offered features, in the most exact offered dtype."""
    fixed = {
        axis: values[0]
        for axis, values in offer.items()
        if axis not in {"heads", "size", "regime", "memory", "kv_heads", "v_dim"}
    }
    # Distinct inputs: in self-attention the unit values are the queries too.
    distinct = ("distinct", "cross") if fixed["form"] == "mha" else ("cross",)
    fixed["inputs"] = next((each for each in distinct if each in offer["inputs"]), fixed["inputs"])
    fixed["dtype"] = next(d for d in ATOL if d in offer["dtype"])
    sizes = dict(SIZES)
    if fixed["inputs"] == "self":
        sizes["queries"] = sizes["keys"]
    if fixed["layout"] == "unbatched":
        sizes["batch"] = 1
    sizes["heads_count"] = 3 if "many" in offer["heads"] else 1
    if fixed["projection"] == "separate":
        sizes |= {"kdim": 23, "vdim": 25}
    if has_one_kv_head(offer):
        sizes |= {"heads_count": 4, "kv_heads_count": 1}
    return Case(seed=SEED, **{**sizes, **fixed, **changes})  # type: ignore[arg-type]  # fields vary


def plain_case_for(candidate: Candidate, **changes: object) -> Case:
    """Return the small case of what a candidate offers, of as many keys as queries if need be."""
    case = plain_case(candidate.offer, **changes)
    return case.replace(queries=case.keys) if takes_one_length(candidate.facts.reasons) else case


def read_sample_weights(
    answers: Answers, problem: Problem, sample: int, calls: int = CALLS
) -> Array | None:
    """Return the weights of one sample, (H, L, S'), or None where they cannot be read.

    ``answers`` returns what a candidate says to each of a few problems, at most ``calls``.

    A call shows Dv keys: their value rows are unit vectors, all others zero. A projection W_v that
    solves x W_v^T = I gives them, where there are no more keys than columns. The weight of one
    appended key is 1 minus the sum of the others; those of two are unknown, NaN.
    """
    keys, width = problem.key.shape[1], problem.v_head_dim
    starts = range(0, keys, width)
    if not keys or len(starts) > calls:
        return None
    problems = [_identity_values(problem, sample, start) for start in starts]
    solved = [each for each in problems if each is not None]
    if len(solved) < len(problems):
        return None
    parts = []
    for answer in answers(solved):
        if isinstance(answer, CandidateError) or np.shape(answer.output) != problem.output_shape:
            return None
        output = as_float64(answer.output)
        parts.append(split_heads(output, problem.num_heads)[sample])
    read = np.concatenate(parts, axis=-1)[..., :keys]
    return np.concatenate([read, _appended(read, problem.appended)], axis=-1)


def _appended(read: Array, count: int) -> Array:
    missing = np.full((*read.shape[:-1], count), np.nan)
    return 1 - read.sum(axis=-1, keepdims=True) if count == 1 else missing


def _identity_values(problem: Problem, sample: int, start: int) -> Problem | None:
    """Return the problem whose values show the keys from ``start`` on."""
    keys, width = problem.key.shape[1], problem.v_head_dim
    unit = np.eye(keys, keys + width)[:, start : start + width]
    if problem.w_v is None:
        value = np.broadcast_to(np.tile(unit, problem.num_kv_heads), problem.value.shape)
        return problem.replace(value=np.ascontiguousarray(value, dtype=problem.dtype))
    target = np.tile(unit, problem.num_heads)
    if problem.case.projection in PROJECTIONS and not _is_shared(problem):
        value = np.broadcast_to(target, problem.value.shape).astype(problem.dtype)
        problem = problem.replace(value=value, w_v=np.eye(len(problem.w_v), dtype=problem.dtype))
    rows = problem.value[sample].astype(np.float64)
    w_v = _solved(problem, rows, target).astype(problem.dtype)
    if not np.abs(rows @ w_v.T.astype(np.float64) - target).max() < SOLVED:
        return None
    zeros = {name: _zeros(getattr(problem, name)) for name in ("b_v", "bias_v", "b_out")}
    identity = None if problem.w_out is None else np.eye(len(problem.w_out), dtype=problem.dtype)
    return problem.replace(w_v=w_v, w_out=identity, **zeros)


def _is_shared(problem: Problem) -> bool:
    """Return whether the values are the keys or the queries too."""
    return problem.value is problem.key or problem.value is problem.query


def _solved(problem: Problem, rows: Array, target: Array) -> Array:
    """Return the projection W_v with rows W_v^T = target, as nearly as the layer can hold one."""
    case = problem.case
    if case.projection not in PROJECTIONS:
        return np.asarray(np.linalg.lstsq(rows, target, rcond=None)[0].T)
    every = rows.reshape(len(rows), case.heads_count, case.head_dim)
    if case.projection == "shared":
        every = every.reshape(-1, 1, case.head_dim)
    wanted = target.reshape(len(every), -1, case.head_dim)
    blocks = [
        np.linalg.lstsq(every[:, head], wanted[:, head], rcond=None)[0].T
        for head in range(every.shape[1])
    ]
    return head_projections.spread(case, np.concatenate(blocks))


def _zeros(array: Array | None) -> Array | None:
    return None if array is None else np.zeros_like(array)


def read_weights(candidate: Candidate, case: Case) -> WeightsReading | None:
    """Return the weights of all samples of a plain case, or None without an answer."""
    problem = with_one_hot_values(make_problem(case))
    output = ask_output(candidate, problem)
    if output is None:
        return None
    own = problem.weights_shape[-1] - problem.appended
    heads = split_heads(output, problem.num_heads)
    right = Attention(problem)
    right.answer()
    q, k = right.stages["query heads"], right.stages["key heads"]
    dots = (q @ k.swapaxes(-1, -2))[..., :own]
    return WeightsReading(problem, heads[..., :own], right.stages["weights"][..., :own], dots)


def ask_output(candidate: Candidate, problem: Problem) -> Array | None:
    """Return the candidate's output in float64, None where it gives none of the right shape."""
    try:
        found = candidate(problem).output
    except CandidateError:
        return None
    shaped = found.shape == problem.output_shape
    return as_float64(found) if shaped else None


def fit_scale(reading: WeightsReading) -> tuple[Array | None, float]:
    """Return the effective scale of each head from log-ratios, and the misfit of the line.

    log(P_ij / P_i0) = scale (q_i k_j - q_i k_0), whatever the softmax divides by.
    """
    weights = reading.weights
    if weights.size == 0 or weights.shape[-1] < 2 or (weights <= 0).any():
        return None, math.inf
    logs = np.log(weights)
    left = (logs - logs[..., :1]).swapaxes(0, 1).reshape(weights.shape[1], -1)
    right = (reading.dots - reading.dots[..., :1]).swapaxes(0, 1).reshape(left.shape)
    slopes = (left * right).sum(axis=1) / (right * right).sum(axis=1)
    rest = np.abs(left - slopes[:, None] * right).max()
    return slopes, float(rest / max(float(np.abs(left).max()), 1e-300))
