"""Along which axis a layer attends, where its constructor has no switch for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

BATCH_FIRST = (
    "it has no `batch_first` and attends along the second axis, so it was judged with (N, L, E); "
    "torch's default is (L, N, E)."
)


def mixes_samples(convention: Convention, problem: Problem) -> bool:
    """Return whether one token of a sample reaches that token of all samples, and no other token.

    Where both are reached, or neither, no axis is the one that is meant: that is for the judge.

    Raises
    ------
    CandidateError
        The target raised.

    """
    changed: dict[int, Array] = {}  # queries may be the keys as well
    arrays = (problem.query, problem.key, problem.value)
    for array in arrays:
        if id(array) not in changed:
            changed[id(array)] = array.copy()
            changed[id(array)][0, -1] += 1
    query, key, value = (changed[id(array)] for array in arrays)
    other = problem.replace(query=query, key=key, value=value)
    before, after = (convention(each).output for each in (problem, other))
    if before.shape != problem.output_shape or after.shape != before.shape:
        return False
    moved = (before != after).any(axis=-1)  # (N, L)
    tokens, samples = moved[0, :-1].any(), moved[1:, -1].all()
    return bool(samples and not tokens and not np.isnan(before).any())
