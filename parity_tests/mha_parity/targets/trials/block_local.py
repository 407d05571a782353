"""Targets whose `block_size` is no tile: rows see the keys of their own block alone."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import equal_up_to_rounding
from mha_parity.core.features import AS_ALL_KEYS
from mha_parity.targets.caches.cached_calls import rows
from mha_parity.targets.interpretations.try_interpretations import SMALL, trial_problem
from mha_parity.targets.static.projection_names import snake_case

if TYPE_CHECKING:
    from mha_parity.targets.interpretations.interpretation import Interpretation
    from mha_parity.targets.interpretations.try_interpretations import Ask

_BLOCK, _BLOCKS = 2, 3  # rows of a block in trials, and how many there are
# Another word before it says of what it is a tile.
_OF_ROWS = re.compile(r"((attn|attention|local)_)?(block|chunk)(_(size|len|length))?")
OWN_BLOCK = f"rows see the keys of their own block of that size alone; passed {AS_ALL_KEYS}"


def with_whole_blocks(how: Interpretation, ask: Ask, dtype: str) -> Interpretation:
    """Return an interpretation with blocks of all keys where rows see no other block's keys.

    Then each block is answered as by a call of its own, and it has one size, of rows. What answers
    to several tiles otherwise is wrong, and is judged with tiles.
    """
    sizes = how.roles.tiles
    if len(sizes) != 1 or not _OF_ROWS.fullmatch(snake_case(sizes[0])):
        return how
    length = _BLOCK * _BLOCKS
    cut = replace(how, roles=replace(how.roles, tile=_BLOCK))
    base = SMALL.replace(queries=length, keys=length)
    problem = trial_problem(cut, "self", dtype, base)
    try:
        whole = ask(cut, problem).output
        cuts = range(0, length, _BLOCK)
        alone = [ask(cut, rows(problem, at, at + _BLOCK)).output for at in cuts]
    except CandidateError:
        return how
    own = all(each.shape[1:2] == (_BLOCK,) for each in alone) and equal_up_to_rounding(
        np.concatenate(alone, axis=1), whole
    )
    return replace(how, roles=replace(how.roles, tile=0)) if own else how
