"""Reads attention weights out of an output: where V holds rows of the identity, P V shows P."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.candidate import CandidateError
from mha_parity.gold import split
from mha_parity.trial import ask

if TYPE_CHECKING:
    from mha_parity.candidate import Candidate
    from mha_parity.problem import Problem
    from mha_parity.values import Array

CALLS = 16  # of the candidate, for one picture
SOLVED = 0.01  # how far projected values may be from the identity: a picture shows two digits


def read_weights(candidate: Candidate, problem: Problem, sample: int) -> Array | None:
    """Return the weights of one sample, (H, L, S'), or None where they cannot be read.

    A call shows Dv keys: their value rows are unit vectors, all others zero. Behind a projection
    these come from a W_v that solves x W_v^T = I, which needs no more keys than columns. The weight
    of one appended key is what is missing to 1; of two it is unknown, NaN.
    """
    keys, width = problem.key.shape[1], problem.v_head_dim
    starts = range(0, keys, width)
    if not keys or len(starts) > CALLS:
        return None
    asked = [_showing(problem, sample, start) for start in starts]
    posed = [each for each in asked if each is not None]
    if len(posed) < len(asked):
        return None
    parts = []
    for answer in ask(candidate, posed):
        if isinstance(answer, CandidateError) or np.shape(answer.output) != problem.output_shape:
            return None
        output = np.asarray(answer.output, dtype=np.float64)
        parts.append(split(output, problem.num_heads)[sample])
    read = np.concatenate(parts, axis=-1)[..., :keys]
    return np.concatenate([read, _appended(read, problem.appended)], axis=-1)


def _appended(read: Array, count: int) -> Array:
    missing = np.full((*read.shape[:-1], count), np.nan)
    return 1 - read.sum(axis=-1, keepdims=True) if count == 1 else missing


def _showing(problem: Problem, sample: int, start: int) -> Problem | None:
    """Return the problem whose values show the keys from ``start`` on."""
    keys, width = problem.key.shape[1], problem.v_head_dim
    unit = np.eye(keys, keys + width)[:, start : start + width]
    if problem.w_v is None:
        value = np.broadcast_to(np.tile(unit, problem.num_kv_heads), problem.value.shape)
        return problem.replace(value=np.ascontiguousarray(value, dtype=problem.dtype))
    rows = problem.value[sample].astype(np.float64)
    target = np.tile(unit, problem.num_heads)
    w_v = np.linalg.lstsq(rows, target, rcond=None)[0].T.astype(problem.dtype)
    if not np.abs(rows @ w_v.T.astype(np.float64) - target).max() < SOLVED:
        return None
    zeros = {name: _zeros(getattr(problem, name)) for name in ("b_v", "bias_v", "b_out")}
    identity = None if problem.w_out is None else np.eye(len(problem.w_out), dtype=problem.dtype)
    return problem.replace(w_v=w_v, w_out=identity, **zeros)


def _zeros(array: Array | None) -> Array | None:
    return None if array is None else np.zeros_like(array)
