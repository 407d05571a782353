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
    """Return whether one of the first two rows is the same when one of the last two changes.

    Two rows, since a rule that hides the diagonal too leaves the first one nothing, which then may
    see everything. The rows between may see too much of the future: that is for the judge, and no
    name of a class or a file has a say. A target that forgets its last key hides no future, nor
    does one whose last row never sees the key before it: it may answer with keys of other calls.
    A causal rule is one of a single head too: where several are split wrongly, rows are a jumble,
    in which none of the last may reach the first.

    Raises
    ------
    CandidateError
        The target raised.

    """
    if not _reaches_back_alone(convention, problem):
        return False
    single = problem.case.replace(heads_count=1, kv_heads_count=0)
    has_one = problem.case.heads_count > 1 and "one" in convention.offer["heads"]
    if not has_one or convention.own_weights is not None:
        return True
    try:
        return _reaches_back_alone(convention, make_problem(single))
    except CandidateError:
        return True


def _reaches_back_alone(convention: Convention, problem: Problem) -> bool:
    """Return whether the last row sees the last two, of which one of the first sees neither."""
    before = convention(problem).output
    last = convention(_changed(problem, -1)).output
    unchanged = [row for row in (0, 1) if _equal(before[:, row], last[:, row])]
    if not unchanged or _equal(before[:, -1], last[:, -1]):
        return False
    other = convention(_changed(problem, -2)).output
    if _equal(before[:, -1], other[:, -1]):
        return False
    return any(_equal(before[:, row], other[:, row]) for row in unchanged)


def _equal(first: Array, second: Array) -> bool:
    """Return whether rows are the same to the bit, NaN the same as NaN."""
    return np.array_equal(first, second, equal_nan=True)


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
    """Offer causal self-attention alone where a target hides the future by itself."""
    case = convention.trial_case()
    with suppress(CandidateError):
        convention.hides_future = hides_the_future(
            convention, make_problem(case.replace(inputs="self", keys=case.queries))
        )
    if convention.hides_future:
        convention.offer = convention.offer | {"attn": ("causal",), "inputs": ("self",)}
        convention.reasons["attn", "none"] = HIDES
        convention.remarks = (*convention.remarks, CAUSAL)
