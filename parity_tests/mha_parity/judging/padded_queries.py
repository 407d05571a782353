"""Rows of padded queries: their output is read by no one, and code differs in what stands there.

Torch's layer answers them like others, its encoder has zeros in them where it packs its samples,
and much code masks queries by the mask of its keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.judging.nonfinite import overflow_elements

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.judging.groups import JudgedArray


def padded_elements(problem: Problem, judged: JudgedArray, *, one_length: bool) -> Array:
    """Return which elements belong to rows of padded queries, shaped like the quantity.

    Keys are the queries where they are one array or projections of it, or where the target takes
    ``one_length`` of both.
    """
    case, mask = problem.case, problem.key_padding_mask
    projected = case.form == "qkv" and case.inputs == "self"
    alike = projected or problem.query is problem.key or one_length
    if mask is None or not alike or case.queries != case.keys:
        return np.zeros(judged.reference.shape, dtype=bool)
    hidden = mask if mask.dtype == np.bool_ else np.isneginf(mask)
    return overflow_elements(np.repeat(hidden[:, None], problem.num_heads, axis=1), judged)


def words_of(rows: Array) -> str:
    """Return what stands in rows of padded queries."""
    if np.isnan(rows).all():
        return "nan"
    return "zero" if not rows.any() else "others than torch's"
