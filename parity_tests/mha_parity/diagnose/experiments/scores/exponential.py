"""How exactly the exponential is computed, at scores that have no rounding error of their own.

One channel of q and k is not zero, and its numbers have few binary digits; D = 16, so that the
scale 1/4 is exact. The ratio of two weights of a row is then exp of a number that is known exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.weight_readout import with_one_hot_values
from mha_parity.diagnose.experiments.designs.calls import BITS, unmixed_problem

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.diagnose.experiments.designs.calls import Caller

SIZES = {"batch": 1, "queries": 6, "keys": 16, "head_dim": 16}
ROWS = (0.0, 0.25, 0.75, 1.0, 2.0, 3.0)
# Scores times 4 over 0 … -80: zero twice, then steps of unlike binary digits.
COLUMNS = (0, 0, -0.125, -0.5, -1, -1.75, -3, -5.5, -8, -11, -14.25, -20, -27, -40, -64.5, -80)
LEAST_SCORE = {"float64": -60.0, "float32": -60.0, "float16": -6.0, "bfloat16": -60.0}


@dataclass(frozen=True, eq=False)
class ExponentialErrors:
    """Ratios of weights over the exact difference of their scores, and their errors in ulp."""

    scores: Array
    ratios: Array
    ulps: Array

    @property
    def worst(self) -> float:
        """The largest error in ulp."""
        return float(self.ulps.max(initial=0))

    @property
    def at(self) -> float:
        """The score at which the error is largest."""
        return float(self.scores[int(np.argmax(self.ulps))])


def exponential_errors(caller: Caller) -> ExponentialErrors | None:
    """Return the errors of the exponential, or None where inputs cannot be set or nothing comes."""
    case = caller.base
    width = case.heads_count * SIZES["head_dim"]
    kinds = {"kdim": width, "vdim": width} if case.projection == "separate" else {}
    problem = unmixed_problem(caller.case(**SIZES, **kinds))
    if problem.head_dim != SIZES["head_dim"]:
        return None  # a layer of another width
    if problem.query is problem.key or (problem.w_v is not None and problem.key is problem.value):
        return None
    if (problem.query.shape[1], problem.key.shape[1]) != (len(ROWS), len(COLUMNS)):
        return None  # a target of as many queries as keys
    trial = caller.ask_problems([_designed(problem)])
    if not trial or trial[0].found is None:
        return None
    scores = np.asarray(trial[0].right.stages["masked scores"][0], dtype=np.float64)
    return _errors(trial[0].found[0], scores[..., : len(COLUMNS)], problem.case.dtype)


def _designed(problem: Problem) -> Problem:
    """Return the problem with scores ROWS x COLUMNS / 4 in every head, and unit values."""
    d = problem.head_dim
    query, key = np.zeros_like(problem.query), np.zeros_like(problem.key)
    query[:, :, : problem.num_heads * d : d] = np.array(ROWS)[:, None]
    key[:, :, : problem.num_kv_heads * d : d] = np.array(COLUMNS)[:, None]
    changes: dict[str, object] = {"query": query, "key": key}
    for name in ("w_q", "w_k", "b_q", "b_k"):
        array = getattr(problem, name)
        if array is not None:
            eye = array.ndim == 2
            changes[name] = np.eye(*array.shape, dtype=array.dtype) if eye else np.zeros_like(array)
    return with_one_hot_values(problem.replace(**changes))


def _errors(weights: Array, scores: Array, dtype: str) -> ExponentialErrors | None:
    """Return the errors of weights (H, L, S) against their row's first, where both are numbers.

    A key that a mask hides has no score; one that a mask adds something to has none of these.
    """
    designed = np.broadcast_to(np.outer(ROWS, COLUMNS) / 4, weights.shape)
    usable = (scores == designed) & (scores >= LEAST_SCORE[dtype]) & np.isfinite(weights)
    usable &= (weights[..., :1] > 0) & (scores[..., :1] == 0)
    if not usable.any():
        return None
    first = np.where(weights[..., :1] > 0, weights[..., :1], 1).astype(np.longdouble)
    ratios = weights.astype(np.longdouble) / first
    exact = np.exp(designed.astype(np.longdouble))
    ulps = np.abs(ratios / exact - 1) * 2.0 ** BITS[dtype]
    kept = [np.asarray(array[usable], dtype=np.float64) for array in (scores, ratios, ulps)]
    return ExponentialErrors(*kept)
