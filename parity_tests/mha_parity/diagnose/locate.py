"""The first stage of attention at which a candidate and the right answer part."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.candidate import CandidateError
from mha_parity.making import make
from mha_parity.reading import EXACT, Reading, output, plain_case, read, slope
from mha_parity.wrong import Attention

if TYPE_CHECKING:
    from mha_parity.candidate import Candidate
    from mha_parity.values import Array


def stage(candidate: Candidate, reading: Reading) -> str:
    """Return the first stage at which candidate and right answer part."""
    looks = (_in_weights, _in_features, _after_weights, _returned)
    found = (look(candidate, reading) for look in looks)
    nowhere = "nowhere in plain problems: only with particular sizes, values or features"
    return next((name for name in found if name), nowhere)


def _in_weights(_: Candidate, reading: Reading) -> str | None:
    """Return the stage of plain problems that the weights themselves show."""
    if not _off(reading):
        return None
    if _below_zero(reading):
        return "projection of v, mixing or merge (weights read out of it are negative)"
    if sums_off(reading):
        return "softmax (its rows do not sum to 1)"
    slopes, misfit = slope(reading)
    if slopes is None or misfit > math.sqrt(reading.near):
        return "projection, split or scores of q and k"
    return "scale" if np.abs(slopes - reading.problem.scale).max() > reading.near else "softmax"


def _in_features(candidate: Candidate, _: Reading) -> str | None:
    """Return the feature with which the weights depart."""
    names = {
        "padding": "mask",
        "attn": "mask",
        "bias_kv": "appended keys",
        "bias": "biases of q, k",
    }
    names["zero_attn"] = names["bias_kv"]
    for axis, name in names.items():
        for value in candidate.offer[axis]:
            reading = None if value in {"none", "no"} else _try(candidate, {axis: value})
            if reading is not None and _off(reading):
                return f"{name} ({axis}={value})"
    return None


def _after_weights(candidate: Candidate, _: Reading) -> str | None:
    """Return the stage behind the weights at which plain problems depart."""
    offered = candidate.offer["out_proj"]
    if _departs(candidate, {"out_proj": offered[0]}):
        return "projection of v, mixing, merge or output projection"
    if "general" in offered and _departs(candidate, {"out_proj": "general"}):
        return "output projection"
    return None


def _returned(candidate: Candidate, _: Reading) -> str | None:
    """Return the kind of returned weights that departs, though the output does not."""
    for kind in candidate.offer["weights"]:
        problem = make(plain_case(candidate.offer, weights=kind))
        due = Attention(problem).answer().weights
        try:
            got = None if due is None else candidate(problem).weights
        except CandidateError:
            continue
        if due is not None and not _same(got, due, EXACT[problem.case.dtype]):
            return f"the weights that are returned (weights={kind}); the output is right"
    return None


def _same(got: Array | None, due: Array, near: float) -> bool:
    if got is None or got.shape != due.shape:
        return False
    apart = np.abs(np.asarray(got, dtype=np.float64) - np.asarray(due, dtype=np.float64))
    return bool(apart.max(initial=0) <= 10 * near)


def _off(reading: Reading) -> bool:
    """Return whether the weights depart; NaN does."""
    return not np.abs(reading.weights - reading.right).max(initial=0) <= reading.near


def _below_zero(reading: Reading) -> bool:
    return bool((reading.weights < -10 * reading.near).any())


def _try(candidate: Candidate, changes: dict[str, object]) -> Reading | None:
    return read(candidate, plain_case(candidate.offer, **changes))


def _departs(candidate: Candidate, changes: dict[str, object]) -> bool:
    problem = make(plain_case(candidate.offer, **changes))
    found = output(candidate, problem)
    if found is None:
        return False
    right = np.asarray(Attention(problem).answer().output, dtype=np.float64)
    scale = max(1.0, float(np.abs(right).max(initial=0)))
    return bool(np.abs(found - right).max(initial=0) > 10 * EXACT[problem.case.dtype] * scale)


def sums_off(reading: Reading) -> bool:
    """Return whether the rows of weights do not sum to 1."""
    return bool(np.abs(reading.weights.sum(axis=-1) - 1).max(initial=0) > 10 * reading.near)
