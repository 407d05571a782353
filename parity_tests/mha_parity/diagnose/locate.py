"""Find the first stage of attention at which a candidate departs from the right answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import Attention
from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import as_float64
from mha_parity.diagnose.read_weights import (
    ATOL,
    WeightsReading,
    ask_output,
    fit_scale,
    plain_case_for,
    read_weights,
)

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Candidate


def first_wrong_stage(candidate: Candidate, reading: WeightsReading) -> str:
    """Return the first stage at which candidate and right answer part."""
    looks = (_in_weights, _in_features, _after_weights, _returned)
    found = (look(candidate, reading) for look in looks)
    nowhere = "nowhere in plain problems: only with particular sizes, values or features"
    return next((name for name in found if name), nowhere)


def _in_weights(_: Candidate, reading: WeightsReading) -> str | None:
    """Return the stage of plain problems that the weights themselves show."""
    if not _off(reading):
        return None
    if _below_zero(reading):
        return "projection of v, mixing or merge (weights read out of it are negative)"
    if rows_not_summing_to_one(reading):
        return "softmax (its rows do not sum to 1)"
    slopes, misfit = fit_scale(reading)
    if slopes is None or misfit > math.sqrt(reading.atol):
        return "projection, split or scores of q and k"
    return "scale" if np.abs(slopes - reading.problem.scale).max() > reading.atol else "softmax"


def _in_features(candidate: Candidate, _: WeightsReading) -> str | None:
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


def _after_weights(candidate: Candidate, _: WeightsReading) -> str | None:
    """Return the stage behind the weights at which plain problems depart."""
    offered = candidate.offer["out_proj"]
    if _departs(candidate, {"out_proj": offered[0]}):
        return "projection of v, mixing, merge or output projection"
    if "general" in offered and _departs(candidate, {"out_proj": "general"}):
        return "output projection"
    return None


def _returned(candidate: Candidate, _: WeightsReading) -> str | None:
    """Return the kind of returned weights that departs, though the output does not."""
    for kind in candidate.offer["weights"]:
        problem = make_problem(plain_case_for(candidate, weights=kind))
        expected = Attention(problem).answer().weights
        try:
            actual = None if expected is None else candidate(problem).weights
        except CandidateError:
            continue
        if expected is not None and not _same(actual, expected, ATOL[problem.case.dtype]):
            return f"the weights that are returned (weights={kind}); the output is right"
    return None


def _same(actual: Array | None, expected: Array, atol: float) -> bool:
    if actual is None or actual.shape != expected.shape:
        return False
    difference = np.abs(as_float64(actual) - as_float64(expected))
    return bool(difference.max(initial=0) <= 10 * atol)


def _off(reading: WeightsReading) -> bool:
    """Return whether the weights depart; NaN does."""
    return not np.abs(reading.weights - reading.right).max(initial=0) <= reading.atol


def _below_zero(reading: WeightsReading) -> bool:
    return bool((reading.weights < -10 * reading.atol).any())


def _try(candidate: Candidate, changes: dict[str, object]) -> WeightsReading | None:
    return read_weights(candidate, plain_case_for(candidate, **changes))


def _departs(candidate: Candidate, changes: dict[str, object]) -> bool:
    problem = make_problem(plain_case_for(candidate, **changes))
    found = ask_output(candidate, problem)
    if found is None:
        return False
    right = np.asarray(Attention(problem).answer().output, dtype=np.float64)
    scale = max(1.0, float(np.abs(right).max(initial=0)))
    return bool(np.abs(found - right).max(initial=0) > 10 * ATOL[problem.case.dtype] * scale)


def rows_not_summing_to_one(reading: WeightsReading) -> bool:
    """Return whether the rows of weights do not sum to 1."""
    return bool(np.abs(reading.weights.sum(axis=-1) - 1).max(initial=0) > 10 * reading.atol)
