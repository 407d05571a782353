"""Reads a candidate's attention weights out of its output, without asking for weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.candidate import CandidateError
from mha_parity.case import Case
from mha_parity.making import make
from mha_parity.unit_values import one_hot
from mha_parity.wrong import Attention

if TYPE_CHECKING:
    from mha_parity.candidate import Candidate
    from mha_parity.features import Offer
    from mha_parity.problem import Problem
    from mha_parity.values import Array

SEED = 77
SIZES = {"batch": 2, "queries": 4, "keys": 5, "head_dim": 7}
EXACT = {"float64": 1e-9, "float32": 1e-4, "float16": 3e-2, "bfloat16": 2e-1}


@dataclass(frozen=True, eq=False)
class Reading:
    """Attention weights read from a candidate's output, beside the right ones.

    Shapes (N, H, L, S); ``dots`` are the right q k^T without scale or masks.
    """

    problem: Problem
    weights: Array
    right: Array
    dots: Array

    @property
    def near(self) -> float:
        """What counts as equal in the problem's dtype."""
        return EXACT[self.problem.case.dtype]


def plain_case(offer: Offer, **changes: object) -> Case:
    """Return a small case of the plainest offered features, in the most exact offered dtype."""
    fixed = {
        axis: values[0]
        for axis, values in offer.items()
        if axis not in {"heads", "size", "regime", "memory", "kv_heads", "v_dim"}
    }
    # Inputs of their own: where x is query, key and value, the unit values are the queries too.
    apart = ("distinct", "cross") if fixed["form"] == "mha" else ("cross",)
    fixed["inputs"] = next((each for each in apart if each in offer["inputs"]), fixed["inputs"])
    fixed["dtype"] = next(d for d in EXACT if d in offer["dtype"])
    sizes = dict(SIZES)
    if fixed["inputs"] == "self":
        sizes["queries"] = sizes["keys"]
    if fixed["layout"] == "unbatched":
        sizes["batch"] = 1
    sizes["heads_count"] = 3 if "many" in offer["heads"] else 1
    if fixed["projection"] == "separate":
        sizes |= {"kdim": 23, "vdim": 25}
    if offer["kv_heads"] == ("fewer",):
        sizes |= {"heads_count": 4, "kv_heads_count": 2}
    return Case(seed=SEED, **{**sizes, **fixed, **changes})  # type: ignore[arg-type]  # fields vary


def read(candidate: Candidate, case: Case) -> Reading | None:
    """Return the weights that the candidate mixes the values with, or None without an answer."""
    problem = one_hot(make(case))
    mixed = output(candidate, problem)
    if mixed is None:
        return None
    n, h, length, total = problem.weights_shape
    own = total - problem.appended
    heads = mixed.reshape(n, length, h, problem.v_head_dim).swapaxes(1, 2)
    right = Attention(problem)
    right.answer()
    q, k = right.stages["query heads"], right.stages["key heads"]
    dots = (q @ k.swapaxes(-1, -2))[..., :own]
    return Reading(problem, heads[..., :own], right.stages["weights"][..., :own], dots)


def output(candidate: Candidate, problem: Problem) -> Array | None:
    """Return the candidate's output in float64, None where it gives none of the right shape."""
    try:
        found = candidate(problem).output
    except CandidateError:
        return None
    shaped = found.shape == problem.output_shape
    return np.asarray(found, dtype=np.float64) if shaped else None


def slope(reading: Reading) -> tuple[Array | None, float]:
    """Return the effective scale of each head from log-ratios, and how ill a line fits.

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
