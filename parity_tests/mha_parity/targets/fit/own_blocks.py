"""Targets whose `block_size` is no tile: rows see the keys of their own block alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import equal_up_to_rounding
from mha_parity.core.features import WHOLE
from mha_parity.core.problem import INPUTS
from mha_parity.targets.fit.search import SMALL, trial_problem

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.targets.fit.interpretation import Interpretation
    from mha_parity.targets.fit.search import Ask

BLOCK, BLOCKS = 2, 3  # rows of a block in trials, and how many there are
OWN_BLOCK = f"rows see the keys of their own block of that size alone; passed {WHOLE}"


def with_whole_blocks(how: Interpretation, ask: Ask, dtype: str) -> Interpretation:
    """Return an interpretation with blocks of all keys where rows see no other block's keys.

    Then each block is answered as by a call of its own. What answers to several tiles otherwise is
    wrong, and is judged with tiles.
    """
    if not how.roles.tiles:
        return how
    cut = replace(how, roles=replace(how.roles, tile=BLOCK))
    base = SMALL.replace(queries=BLOCK * BLOCKS, keys=BLOCK * BLOCKS)
    problem = trial_problem(cut, "self", dtype, base)

    def rows(first: int, end: int) -> Array:
        cut_rows: dict[int, Array] = {}  # one array for several inputs stays one
        for array in (getattr(problem, name) for name in INPUTS):
            cut_rows.setdefault(id(array), array[:, first:end].copy())
        inputs = {name: cut_rows[id(getattr(problem, name))] for name in INPUTS}
        case = problem.case.replace(queries=end - first, keys=end - first)
        return ask(cut, problem.replace(case=case, **inputs)).output

    try:
        whole = rows(0, BLOCK * BLOCKS)
        alone = [rows(first, first + BLOCK) for first in range(0, BLOCK * BLOCKS, BLOCK)]
    except CandidateError:
        return how
    own = all(each.shape[1:2] == (BLOCK,) for each in alone) and equal_up_to_rounding(
        np.concatenate(alone, axis=1), whole
    )
    return replace(how, roles=replace(how.roles, tile=0)) if own else how
