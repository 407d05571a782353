"""Measure a candidate by its outputs, within what it offers.

From the weights that are read out of its output follow row and column sums (over which axis the
softmax runs), and log-ratios (the effective scale, a mask, a hidden bias); changed inputs show who
influences whom.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError, ask
from mha_parity.diagnose.locate import first_wrong_stage, rows_not_summing_to_one
from mha_parity.diagnose.read_weights import (
    ATOL,
    WeightsReading,
    ask_output,
    fit_scale,
    plain_case_for,
    read_weights,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Candidate
    from mha_parity.core.problem import Problem

BARELY = 1e-3  # of a sum closer to 1 the distance is shown


def measure(
    candidate: Candidate, running: Callable[[], bool] = lambda: True, *, weights: bool = True
) -> tuple[str, ...]:
    """Return what the probes find odd, each as a sentence with numbers; nothing odd: nothing.

    ``weights`` are read too, unless their sums and log-ratios are known.
    """
    return tuple(_findings(candidate, running, weights=weights))


def _findings(candidate: Candidate, running: Callable[[], bool], *, weights: bool) -> Iterator[str]:
    plain = plain_case_for(candidate)
    reading = read_weights(candidate, plain)
    if reading is None:
        (found,) = ask(candidate, [make_problem(plain)])
        # What is asked no more, as its process was lost too often, may answer it.
        if not isinstance(found, CandidateError) or found.severity != "inconclusive":
            yield "the candidate does not answer the plainest problem that it offers"
        return
    yield f"the first stage to depart from torch: {first_wrong_stage(candidate, reading)}"
    for probe in (weight_sums, effective_scales, keys_without_weight) if weights else ():
        yield from probe(reading)
    if running():
        yield from channel_mixing(candidate)
    if running():
        yield from sample_influence(candidate)
    if running():
        yield from row_influence(candidate)


def weight_sums(reading: WeightsReading) -> Iterator[str]:
    """Say over which axis the weights sum to 1, where that is not the keys."""
    if not rows_not_summing_to_one(reading):
        return
    weights, atol = reading.weights, 10 * reading.atol
    names = {
        "each column (over the queries)": weights.sum(axis=-2),
        "each cell over the heads": weights.sum(axis=1),
        "each cell over the samples": weights.sum(axis=0),
        "each query over heads and keys": weights.sum(axis=(1, 3)),
        "each head's whole matrix": weights.sum(axis=(2, 3)),
    }
    for name, total in names.items():
        if total.size and np.abs(total - 1).max() <= atol:
            yield f"weights sum to 1 in {name}, but should in each row (over the keys)"
            return
    row = weights.sum(axis=-1)
    off = float(np.abs(row - 1).max())
    if off < BARELY:
        yield f"rows of weights sum to 1 within {off:.2g} alone"
    else:
        yield f"rows of weights sum to {row.min():.4g} ... {row.max():.4g}, but should to 1"


def effective_scales(reading: WeightsReading) -> Iterator[str]:
    """Say the effective scale, and which size it is made of."""
    slopes, misfit = fit_scale(reading)
    if slopes is None:
        yield "some weights are zero or negative, so that no scale can be read"
        return
    expected, atol = reading.problem.scale, math.sqrt(reading.atol)
    if misfit > atol:
        yield (
            f"log-ratios of the weights are not proportional to q k^T (misfit {misfit:.2g}): "
            "q, k or their split differ, or something is added to the scores"
        )
    elif np.ptp(slopes) > atol:
        yield f"each head has its own scale: {', '.join(f'{s:.4f}' for s in slopes)}"
    elif abs(slopes[0] - expected) > atol * expected:
        found = float(slopes.mean())
        meaning = "; ".join(named_sizes(reading.problem, found))
        known = f"; {meaning}" if meaning else ""
        formula = " = 1/sqrt(head_dim)" if reading.problem.given_scale is None else ""
        ratio = f" ({found / expected:.4g} times that)" if found else ""
        yield f"effective scale {found:.4f}, expected {expected:.4f}{formula}{known or ratio}"


def named_sizes(problem: Problem, found: float) -> Iterator[str]:
    """Yield the formulas in the sizes of the problem that give the number found."""
    case = problem.case
    sizes = {
        "d_model": case.embed_dim, "num_heads": case.heads_count, "head_dim": case.head_dim,
        "S": case.keys, "L": case.queries, "N": case.batch, "64": 64,
    }  # fmt: skip
    for name, size in sizes.items():
        for text, value in (
            (f"1/sqrt({name})", size**-0.5),
            (f"1/{name}", 1 / size),
            (f"sqrt({name})", size**0.5),
            (f"ln 2/sqrt({name})", math.log(2) / size**0.5),
        ):
            if abs(value - found) < 1e-4 * found:
                yield f"{found:.4f} = {text}"
    if abs(found - 1) < 1e-4:
        yield "the scores are not scaled"


def keys_without_weight(reading: WeightsReading) -> Iterator[str]:
    """Say which keys get no weight though they should."""
    lost = (np.abs(reading.weights) < 1e-12) & (reading.right > 1e-6)
    if not lost.any():
        return
    always = lost.all(axis=(0, 1))
    length, keys = always.shape
    shapes = {
        "keys after the query (a causal mask that was not asked for)": np.triu(always * 0 + 1, 1),
        "the key at the query's own place": np.eye(length, keys),
        "the last key": np.arange(keys) + 0 * always == keys - 1,
        "the first key": np.arange(keys) + 0 * always == 0,
    }
    for name, pattern in shapes.items():
        if np.array_equal(always, pattern.astype(bool)):
            yield f"hidden without reason: {name}"
            return
    yield f"{int(lost.sum())} of {lost.size} weights are 0, but should not be"


def channel_mixing(candidate: Candidate) -> Iterator[str]:
    """Say which output channels a channel of v reaches, where that is not its own."""
    problem = make_problem(plain_case_for(candidate))
    case = problem.case
    grouped = case.kv_heads_count not in {0, case.heads_count}
    if grouped or case.projection == "shared" or problem.w_out is not None:
        return
    first = ask_output(candidate, problem)
    if first is None:
        return
    width = problem.num_heads * problem.v_head_dim
    for channel in (1, width // 2, width - 1):
        second = ask_output(candidate, _negated(problem, channel))
        if second is None:
            return
        moved = np.flatnonzero(np.abs(second - first).max(axis=(0, 1)) > ATOL[problem.case.dtype])
        if moved.tolist() != [channel]:
            shown = ", ".join(map(str, moved[:6])) + (" ..." if len(moved) > 6 else "")
            yield f"channel {channel} of v reaches output channels {shown or 'none'}"
            return


def _negated(problem: Problem, channel: int) -> Problem:
    """Return the problem with one channel of v negated."""
    name = "value" if problem.w_v is None else "w_v"
    array = getattr(problem, name).copy()
    at = (..., channel) if problem.w_v is None else (channel,)
    array[at] *= -1
    changes = {name: array}
    if problem.b_v is not None:
        changes["b_v"] = problem.b_v.copy()
        changes["b_v"][channel] *= -1
    return problem.replace(**changes)


def sample_influence(candidate: Candidate) -> Iterator[str]:
    """Say whether one sample reaches the answer to another."""
    problem = make_problem(plain_case_for(candidate))
    if problem.case.batch < 2:
        return
    moved = _moved(candidate, problem, np.arange(problem.case.batch) == 0, axis=0)
    if moved is not None and moved[1:].any():
        yield f"changing sample 0 changes the answers to samples {np.flatnonzero(moved).tolist()}"


def row_influence(candidate: Candidate) -> Iterator[str]:
    """Say whether one query row reaches the answer to another."""
    problem = make_problem(plain_case_for(candidate))
    if problem.query is problem.key:
        return
    moved = _moved(candidate, problem, np.arange(problem.case.queries) == 1, axis=1)
    if moved is not None and np.flatnonzero(moved).tolist() != [1]:
        yield f"changing query row 1 changes output rows {np.flatnonzero(moved).tolist()}"


def _moved(candidate: Candidate, problem: Problem, where: Array, axis: int) -> Array | None:
    """Return which samples (0) or rows (1) of the output move when inputs change there."""
    changed_elements = where[:, None, None] if axis == 0 else where[None, :, None]
    names = ("query", "key", "value") if axis == 0 else ("query",)
    changed: dict[int, Array] = {}
    changes: dict[str, object] = {}
    for name in names:
        array = getattr(problem, name)
        changes[name] = changed.setdefault(id(array), np.where(changed_elements, -array, array))
    first = ask_output(candidate, problem)
    second = ask_output(candidate, problem.replace(**changes))
    if first is None or second is None:
        return None
    others = tuple(i for i in range(3) if i != axis)
    return np.asarray(np.abs(second - first).max(axis=others) > ATOL[problem.case.dtype])
