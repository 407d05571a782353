"""Judge NaN and infinity by their positions; they match no number.

Two kinds of rows have no one right answer, and what a candidate does there is named:

- rows that see no key. torch gives NaN on the pinned path and 0 on others; programs that hide keys
  by a large finite number give the mean of V ("uniform"). Where there is no key at all (S = 0)
  torch has 0 on every path, and a program that divides by the sum of no exponentials has NaN;
- rows to which a key with NaN or infinity is hidden. torch lets it through (0 times NaN is NaN); a
  candidate that *sanitises* gives what it would have given without that key.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.arrays import merge_heads
from mha_parity.core.compare import as_float64, same_kind
from mha_parity.core.features import EXTREME_VALUES
from mha_parity.core.options import POLICIES, Policy
from mha_parity.oracle.error_bound import roundoff, smallest_number
from mha_parity.oracle.reference import Reference, reference_answer
from mha_parity.oracle.row_tails import nan_past_rows

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.judging.output_groups import JudgedArray

OTHER = "other"
# What rows that see no key are, in the sentence of the check.
WORDS = {each: each for each in POLICIES} | {OTHER: "neither nan, zero nor uniform"}
SEVERAL = "zero and uniform at once"  # where the mean of the values is 0 but for a rounding


def masked_row_elements(problem: Problem, judged: JudgedArray) -> Array:
    """Return which elements belong to a row that sees no key, shaped like the quantity."""
    return _elements(np.asarray(problem.masked_rows()), judged)


def is_undefined_without_keys(problem: Problem, answer: Array) -> bool:
    """Return whether an answer is 0 / 0 because there is no key at all; torch has 0 there."""
    found = as_float64(answer)
    return problem.weights_shape[-1] == 0 and bool(found.size and np.isnan(found).all())


def overflow_rows(problem: Problem, reference: Reference) -> Array:
    """Return the rows (N, H, L) whose q k^T may pass float16's range before it is scaled.

    torch scales first, so that its row is finite; whether others do is asked in one fixed case.
    """
    if problem.dtype != np.float16:
        return np.zeros(reference.q.shape[:3], dtype=bool)
    with np.errstate(all="ignore"):
        sums = np.abs(reference.q) @ np.abs(reference.k).swapaxes(-1, -2)
    return np.asarray((sums > float(np.finfo(np.float16).max)).any(axis=-1))


def sum_overflow_rows(problem: Problem, reference: Reference) -> Array:
    """Return the rows (N, H, L) whose exp(l - max l) V may pass float16's range undivided.

    torch sums in float32; where a program divides last, in float16, a sum of large values is
    infinite. None where the values are the largest number on purpose, or the output passes the
    range itself.
    """
    weights, v = np.abs(reference.weights), np.abs(reference.v)
    extreme = problem.case.regime in EXTREME_VALUES
    if problem.dtype != np.float16 or not weights.shape[-1] or extreme:
        return np.zeros(weights.shape[:3], dtype=bool)
    most = float(np.finfo(np.float16).max)
    with np.errstate(all="ignore"):
        sums = (weights / weights.max(axis=-1, keepdims=True)) @ v
    within = (np.abs(reference.heads) <= most).all(axis=-1)
    return np.asarray(within & (sums > most).any(axis=-1))


def overflow_elements(rows: Array, judged: JudgedArray) -> Array:
    """Return which elements belong to rows (N, H, L) that overflow, shaped like the quantity.

    Of an output in all heads: a projection by the identity spreads NaN of one over the others.
    """
    if judged.name == "output":
        rows = np.broadcast_to(rows.any(axis=1, keepdims=True), rows.shape)
    return _elements(rows, judged)


def _elements(rows: Array, judged: JudgedArray) -> Array:
    """Return the elements of rows (N, H, L), shaped like the quantity."""
    if judged.name == "output" and not judged.mixed:
        return np.repeat(rows.swapaxes(1, 2), judged.shape[3], axis=2)
    by_row = rows if judged.name == "weights" else np.asarray(rows.any(axis=1))
    return np.asarray(np.broadcast_to(by_row[..., None], judged.reference.shape))


def nan_of_other_heads(problem: Problem, judged: JudgedArray, answer: Array) -> Array:
    """Return where NaN of a masked row came through a product to places that have numbers.

    A layer that multiplies by the identity has 0 times NaN in the other heads of the row; one
    without out_proj has numbers. Products that read past a row have it in the row stored before
    (`row_tails`). All are right, so a NaN is let pass, and a number is judged as any other.
    """
    places = np.zeros(answer.shape, dtype=bool)
    if judged.name != "output" or not np.asarray(problem.masked_rows()).any():
        return places
    if not judged.mixed and problem.case.form == "mha":
        places |= np.asarray(problem.masked_rows().any(axis=1))[..., None]
    places |= nan_past_rows(problem)
    return np.asarray(places & np.isnan(as_float64(answer)))


def reference_under(problem: Problem, reference: Reference, policy: Policy) -> Reference:
    """Return the reference with rows that see no key as the policy has them."""
    if policy == "nan":
        return reference
    rows = np.asarray(problem.masked_rows())[..., None]
    keys = max(reference.weights.shape[-1], 1)
    uniform = policy == "uniform"
    weights = np.where(rows, 1 / keys if uniform else 0.0, reference.weights)
    mean = (
        reference.v.mean(axis=2, keepdims=True) if uniform else np.zeros_like(reference.v[:, :, :1])
    )
    heads = np.where(rows, mean, reference.heads)
    output = merge_heads(heads)
    if problem.w_out is not None:
        output = output @ problem.w_out.astype(output.dtype).T
        if problem.b_out is not None:
            output = output + problem.b_out.astype(output.dtype)
    return replace(reference, weights=weights, heads=heads, output=output)


def policies_of(
    problem: Problem, reference: Reference, judged: JudgedArray, answer: Array
) -> tuple[str, ...] | None:
    """Name what the answer has in rows that see no key; None where there are no such rows.

    The policy that is nearest, if every element is within a rounding of each term that makes it;
    both, where a rounding of the largest term parts zeros from the mean of the values.
    """
    places = masked_row_elements(problem, judged)
    if not places.any():
        return None
    found = answer.astype(reference.output.dtype)[places]
    if np.isnan(found).all():
        return ("nan",)
    expected: dict[str, Array] = {}
    for policy in POLICIES[1:]:
        under = reference_under(problem, reference, policy)
        expected[policy] = judged.of(under.output, under.weights)[places]
    distances = {name: _largest_distance(found, each) for name, each in expected.items()}
    nearest = min(distances, key=lambda name: distances[name])
    rounding = _term_rounding(problem, reference, judged)
    if distances[nearest] > policy_reach(problem, reference, judged):
        return (OTHER,)
    same = _largest_distance(*expected.values()) <= rounding
    return tuple(expected) if same else (nearest,)


def _largest_distance(first: Array, second: Array) -> float:
    """Return the largest distance of two elements, infinite where one is no number."""
    return float(np.nan_to_num(np.abs(first - second), nan=np.inf).max())


def policy_reach(problem: Problem, reference: Reference, judged: JudgedArray) -> float:
    """Return a rounding of each term that goes into an element, for the largest terms there are."""
    terms = problem.case.embed_dim + reference.weights.shape[-1] + problem.num_heads + 16
    return float(terms * _term_rounding(problem, reference, judged))


def _term_rounding(problem: Problem, reference: Reference, judged: JudgedArray) -> float:
    """Return a rounding of the largest term that goes into an element."""
    largest = 1.0
    if judged.name == "output":
        largest = float(np.abs(reference.v).max(initial=0, where=np.isfinite(reference.v)))
        for weight in (problem.w_v, problem.w_out):
            if weight is not None:
                sums = np.abs(weight.astype(np.float64)).sum(axis=1)
                largest *= max(1.0, float(sums.max(initial=0)))
        if problem.b_out is not None:
            largest += float(np.abs(problem.b_out.astype(np.float64)).max(initial=0))
    return float(roundoff(problem.dtype) * largest + smallest_number(problem.dtype))


def hides_nonfinite(problem: Problem) -> bool:
    """Return whether a key or value with NaN or infinity is hidden from some query."""
    rows = _poisoned_keys(problem)
    if not rows.any():
        return False
    return bool((problem.hidden()[..., : rows.shape[1]] & rows[:, None, None, :]).any())


def _poisoned_keys(problem: Problem) -> Array:
    broken = [
        ~np.isfinite(rows.astype(np.float64)).all(axis=-1) for rows in (problem.key, problem.value)
    ]
    return np.asarray(broken[0] | broken[1])


def is_sanitised(clean: tuple[Problem, Reference], judged: JudgedArray, answer: Array) -> bool:
    """Return whether NaN and infinity stand where a candidate that sanitises has them."""
    problem, reference = clean
    other = replace(judged, reference=judged.of(reference.output, reference.weights))
    excepted = masked_row_elements(problem, judged)
    as_torch = not kind_mismatch(judged, answer, excepted).any()
    return not as_torch and not kind_mismatch(other, answer, excepted).any()


def sanitised_problem(problem: Problem, reference: Reference) -> tuple[Problem, Reference]:
    """Return what a candidate answers that keeps what is hidden from entering.

    The problem has 0 for NaN and infinity in keys and values; in its reference, rows that see such
    a key stay as torch has them.
    """
    keys = _poisoned_keys(problem)
    harmless = problem.replace(
        key=np.where(keys[..., None], 0, problem.key).astype(problem.dtype),
        value=np.where(keys[..., None], 0, problem.value).astype(problem.dtype),
    )
    clean = reference_answer(harmless)
    visible = ~problem.hidden()[..., : keys.shape[1]] & keys[:, None, None, :]
    sees = np.asarray(visible.any(axis=-1))[..., None]  # (N, H, L, 1)
    mixed = problem.w_out is not None
    rows = sees.any(axis=1) if mixed else None
    heads = np.where(sees, reference.heads, clean.heads)
    merged = merge_heads(heads)
    output = merged if rows is None else np.where(rows, reference.output, clean.output)
    return harmless, replace(
        clean,
        weights=np.where(sees, reference.weights, clean.weights),
        heads=heads,
        output=output,
    )


def overflowed(judged: JudgedArray, answer: Array) -> Array:
    """Return where the reference is a number too large for the dtype."""
    with np.errstate(all="ignore"):
        stored = judged.reference.astype(answer.dtype).astype(np.float64)
    return np.asarray(judged.finite & ~np.isfinite(stored))


def kind_mismatch(judged: JudgedArray, answer: Array, excepted: Array) -> Array:
    """Return where the answer is no number and the reference one, or the other way round.

    The reference counts as the dtype holds it: what is too large for the dtype is infinite there.
    ``excepted`` marks the elements that a policy decides.
    """
    with np.errstate(all="ignore"):
        expected = judged.reference.astype(answer.dtype).astype(np.float64)
        found = answer.astype(np.float64)
    return np.asarray(~same_kind(expected, found) & ~excepted)
