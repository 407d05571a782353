"""Which rows of a problem are padded queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Candidate
    from mha_parity.core.problem import Problem


def marks_positions(candidate: Candidate) -> bool:
    """Return whether masks of keys are those of queries too wherever there are as many."""
    plan = candidate.masks
    return candidate.facts.one_length or (plan is not None and plan.of_positions)


def padded_rows(problem: Problem, *, one_length: bool) -> Array | None:
    """Return which rows (N, L) are padded queries; None where no row is one.

    Keys are the queries where they are one array or projections of it, or where the target takes
    ``one_length`` of both.
    """
    case, mask = problem.case, problem.key_padding_mask
    projected = case.form == "qkv" and case.inputs == "self"
    alike = projected or problem.query is problem.key or one_length
    if mask is None or not alike or case.queries != case.keys:
        return None
    return mask if mask.dtype == np.bool_ else np.isneginf(mask)
