"""NaN and infinity: positions first, never a wildcard.

Two kinds of rows have no one right answer, and what a candidate does there is named:

- rows that see no key. torch gives NaN on the pinned path and 0 on others; programs that hide keys
  by a large finite number give the mean of V ("uniform");
- rows to which a key with NaN or infinity is hidden. torch lets it through (0 times NaN is NaN); a
  candidate that *sanitises* gives what it would have given without that key.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from mha_parity.bound import roundoff, smallest
from mha_parity.gold import Gold, golden, merge

if TYPE_CHECKING:
    from mha_parity.problem import Problem
    from mha_parity.quantity import Quantity
    from mha_parity.values import Array

Policy = Literal["nan", "zero", "uniform"]
POLICIES: tuple[Policy, ...] = ("nan", "zero", "uniform")
OTHER = "other"


def masked_places(problem: Problem, judged: Quantity) -> Array:
    """Return which elements belong to a row that sees no key, shaped like the quantity."""
    rows: Array = np.asarray(problem.masked_rows())  # (N, H, L)
    if judged.name == "output" and not judged.mixed:
        return np.repeat(rows.swapaxes(1, 2), judged.shape[3], axis=2)
    wide = rows if judged.name == "weights" else np.asarray(rows.any(axis=1))
    return np.asarray(np.broadcast_to(wide[..., None], judged.gold.shape))


def leaked(problem: Problem, judged: Quantity, answer: Array) -> Array:
    """Return where NaN of one head's masked row came through an identity out_proj to other heads.

    A layer that multiplies by the identity has 0 times NaN there; one without out_proj has numbers.
    Both are right, so a NaN is let pass, and a number is judged as any other.
    """
    if judged.name != "output" or judged.mixed or problem.case.form != "mha":
        return np.zeros(answer.shape, dtype=bool)
    rows: Array = np.asarray(problem.masked_rows().any(axis=1))
    return np.asarray(rows[..., None] & np.isnan(answer.astype(np.float64)))


def under(problem: Problem, gold: Gold, policy: Policy) -> Gold:
    """Return the gold with rows that see no key as the policy has them."""
    if policy == "nan":
        return gold
    rows = np.asarray(problem.masked_rows())[..., None]
    keys = max(gold.weights.shape[-1], 1)
    uniform = policy == "uniform"
    weights = np.where(rows, 1 / keys if uniform else 0.0, gold.weights)
    mean = gold.v.mean(axis=2, keepdims=True) if uniform else np.zeros_like(gold.v[:, :, :1])
    heads = np.where(rows, mean, gold.heads)
    output = merge(heads)
    if problem.w_out is not None:
        output = output @ problem.w_out.astype(output.dtype).T
        if problem.b_out is not None:
            output = output + problem.b_out.astype(output.dtype)
    return replace(gold, weights=weights, heads=heads, output=output)


def policy_of(problem: Problem, gold: Gold, judged: Quantity, answer: Array) -> str | None:
    """Name what the answer has in rows that see no key; None where there are no such rows.

    The policy that is nearest, if every element is within a rounding of each term that makes it.
    """
    places = masked_places(problem, judged)
    if not places.any():
        return None
    found = answer.astype(gold.output.dtype)[places]
    if np.isnan(found).all():
        return "nan"
    apart = {}
    for policy in POLICIES[1:]:
        expected = under(problem, gold, policy)
        distance = np.abs(found - judged.of(expected.output, expected.weights)[places])
        apart[policy] = float(np.nan_to_num(distance, nan=np.inf).max())
    nearest = min(apart, key=lambda policy: apart[policy])
    return nearest if apart[nearest] <= _reach(problem, gold, judged) else OTHER


def _reach(problem: Problem, gold: Gold, judged: Quantity) -> float:
    """Return a rounding of each term that goes into an element, for the largest terms there are."""
    unit = roundoff(problem.dtype)
    terms = problem.case.embed_dim + gold.weights.shape[-1] + problem.num_heads + 16
    largest = 1.0
    if judged.name == "output":
        largest = float(np.abs(gold.v).max(initial=0, where=np.isfinite(gold.v)))
        for weight in (problem.w_v, problem.w_out):
            if weight is not None:
                sums = np.abs(weight.astype(np.float64)).sum(axis=1)
                largest *= max(1.0, float(sums.max(initial=0)))
        if problem.b_out is not None:
            largest += float(np.abs(problem.b_out.astype(np.float64)).max(initial=0))
    return float(terms * (unit * largest + smallest(problem.dtype)))


def poisoned(problem: Problem) -> bool:
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


def sanitises(clean: tuple[Problem, Gold], judged: Quantity, answer: Array) -> bool:
    """Return whether NaN and infinity stand where a candidate that sanitises has them."""
    problem, gold = clean
    other = replace(judged, gold=judged.of(gold.output, gold.weights))
    apart = masked_places(problem, judged)
    as_torch = not mismatch(judged, answer, apart).any()
    return not as_torch and not mismatch(other, answer, apart).any()


def sanitised(problem: Problem, gold: Gold) -> tuple[Problem, Gold]:
    """Return what a candidate answers that keeps what is hidden from entering.

    The problem has 0 for NaN and infinity in keys and values; in its gold, rows that see such a key
    stay as torch has them.
    """
    keys = _poisoned_keys(problem)
    harmless = problem.replace(
        key=np.where(keys[..., None], 0, problem.key).astype(problem.dtype),
        value=np.where(keys[..., None], 0, problem.value).astype(problem.dtype),
    )
    clean = golden(harmless)
    visible = ~problem.hidden()[..., : keys.shape[1]] & keys[:, None, None, :]
    sees = np.asarray(visible.any(axis=-1))[..., None]  # (N, H, L, 1)
    mixed = problem.w_out is not None
    rows = sees.any(axis=1) if mixed else None
    heads = np.where(sees, gold.heads, clean.heads)
    return harmless, replace(
        clean,
        weights=np.where(sees, gold.weights, clean.weights),
        heads=heads,
        output=merge(heads) if rows is None else np.where(rows, gold.output, clean.output),
    )


def overflows(judged: Quantity, answer: Array) -> Array:
    """Return where the gold is a number too large for the dtype."""
    with np.errstate(all="ignore"):
        stored = judged.gold.astype(answer.dtype).astype(np.float64)
    return np.asarray(judged.finite & ~np.isfinite(stored))


def mismatch(judged: Quantity, answer: Array, apart: Array) -> Array:
    """Return where the answer is no number and the gold one, or the other way round.

    The gold counts as the dtype holds it: what is too large for the dtype is infinite there.
    ``apart`` marks the places that a policy decides.
    """
    with np.errstate(all="ignore"):
        expected = judged.gold.astype(answer.dtype).astype(np.float64)
        found = answer.astype(np.float64)
    same = (
        (np.isfinite(found) & np.isfinite(expected))
        | (np.isnan(found) & np.isnan(expected))
        | (found == expected)
    )
    return np.asarray(~same & ~apart)
