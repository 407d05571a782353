"""Difference of two answers to one problem that rounding explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.judging.output import allowed_error
from mha_parity.judging.output_groups import judged_array

if TYPE_CHECKING:
    from mha_parity.core.problem import Problem
    from mha_parity.oracle.reference import Reference


def may_both_match(problem: Problem, reference: Reference, difference: float) -> bool:
    """Return whether two outputs of one problem may differ by as much, and both be a match."""
    judged = judged_array("output", problem, reference)
    return difference <= 2 * float(np.max(allowed_error(problem, reference, judged), initial=0))
