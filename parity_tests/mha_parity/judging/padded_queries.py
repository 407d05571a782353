"""Rows of padded queries: their output is read by no one, and code differs in what stands there.

Torch's layer answers them like others, its encoder has zeros in them where it packs its samples,
and much code masks queries by the mask of its keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.padded_queries import padded_rows
from mha_parity.judging.nonfinite import overflow_elements

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.judging.output_groups import JudgedArray


def padded_elements(problem: Problem, judged: JudgedArray, *, one_length: bool) -> Array:
    """Return which elements belong to rows of padded queries, shaped like the quantity."""
    rows = padded_rows(problem, one_length=one_length)
    if rows is None:
        return np.zeros(judged.reference.shape, dtype=bool)
    return overflow_elements(np.repeat(rows[:, None], problem.num_heads, axis=1), judged)


def words_of(rows: Array) -> str:
    """Return what stands in rows of padded queries."""
    if np.isnan(rows).all():
        return "nan"
    return "zero" if not rows.any() else "others than torch's"
