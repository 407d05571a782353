"""Whether a target hides the keys behind a query by itself, without a mask."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.conventions.base import Convention

HIDES = "it hides keys behind a query by itself"
UNEQUAL = "by default it hides keys behind a query, by a rule of its own where S is unlike L"
CAUSAL = f"{HIDES}, so it was judged as causal attention."


def hides_the_future(convention: Convention, problem: Problem) -> bool:
    """Return whether the first row stays the same to the bit when one of the last two changes.

    The rows between may see too much of the future: that is for the judge, and no name of a class
    or a file has a say. A target that forgets its last key hides no future.

    Raises
    ------
    CandidateError
        The target raised.

    """
    before = convention(problem).output
    last = convention(_changed(problem, -1)).output
    if not np.array_equal(before[:, 0], last[:, 0]) or np.array_equal(before[:, -1], last[:, -1]):
        return False
    return np.array_equal(before[:, 0], convention(_changed(problem, -2)).output[:, 0])


def _changed(problem: Problem, row: int) -> Problem:
    """Return the problem with one row of queries, keys and values changed."""
    changed: dict[int, Array] = {}  # one for each array: queries may be the keys as well
    for array in (problem.query, problem.key, problem.value):
        if id(array) not in changed:
            changed[id(array)] = array.copy()
            changed[id(array)][:, row] += 1
    return problem.replace(
        query=changed[id(problem.query)],
        key=changed[id(problem.key)],
        value=changed[id(problem.value)],
    )


def take_as_causal(convention: Convention) -> None:
    """Offer causal self-attention alone where a target without masks hides the future by itself."""
    with suppress(CandidateError):
        convention.hides_future = hides_the_future(
            convention, make_problem(convention.trial_case())
        )
    if convention.hides_future:
        convention.offer = convention.offer | {"attn": ("causal",), "inputs": ("self",)}
        convention.reasons["attn", "none"] = HIDES
        convention.remarks = (*convention.remarks, CAUSAL)
