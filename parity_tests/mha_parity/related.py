"""Judges a candidate's second answer by its first: the relations without an oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.judgement import Judgement, Place, Severity

if TYPE_CHECKING:
    from mha_parity.problem import Problem
    from mha_parity.relations import Related
    from mha_parity.values import Array

TINY = np.finfo(np.float64).tiny


def judge_relation(
    problem: Problem, bound: Array, first: Array, second: Array, name: str, related: Related
) -> Judgement:
    """Return the judgement on one relation between the candidate's own two answers.

    ``bound`` is the a-priori rounding-error bound of the first problem, (N, L, H Dv): each of the
    two answers may be off by it once.
    """
    due = np.asarray(related.expected(first), dtype=np.float64)
    got = np.asarray(second, dtype=np.float64)
    if got.shape != due.shape:
        sentence = f"the second answer has shape {got.shape}, but should have {due.shape}"
        return Judgement(
            case=problem.case, check=name, severity=Severity.STRUCTURE, detail=sentence
        )
    # Rows that see no key have no bound: what they are is a policy, and judged elsewhere.
    allowed = 2 * np.nan_to_num(related.expected(bound), nan=np.inf)
    compared = np.broadcast_to(related.compare, got.shape) & np.isfinite(allowed)
    allowed = np.where(compared, allowed, 1.0)
    units = np.where(compared, _distance(got, due) / np.maximum(allowed, TINY), 0.0)
    if units.size == 0:
        return Judgement(case=problem.case, check=name, severity=Severity.MATCH)
    place = np.unravel_index(np.argmax(units), units.shape)
    wrong = bool(units[place] > 1)
    return Judgement(
        case=problem.case,
        check=name,
        severity=Severity.WRONG if wrong else Severity.MATCH,
        error=float(_distance(got, due)[place]) if compared[place] else 0.0,
        allowed=float(allowed[place]) if compared[place] else 0.0,
        where=_where(problem, place),
        detail=f"the target's own two answers break the relation: {name}" if wrong else "",
    )


def _distance(got: Array, due: Array) -> Array:
    """Return |got - due|; infinite where only one of them is finite or they differ in kind."""
    same = (got == due) | (np.isnan(got) & np.isnan(due))
    with np.errstate(invalid="ignore", over="ignore"):
        plain = np.abs(got - due)
    return np.where(same, 0.0, np.where(np.isfinite(plain), plain, np.inf))


def _where(problem: Problem, place: tuple[np.intp, ...]) -> Place:
    sample, row, feature = (int(i) for i in place)
    return Place(sample, feature // problem.v_head_dim, row, feature % problem.v_head_dim)
