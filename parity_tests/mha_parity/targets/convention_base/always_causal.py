"""Whether a target hides the keys behind a query by itself, without a mask."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import absolute_difference
from mha_parity.core.parameters import Role
from mha_parity.targets.convention_base.declared_causal import judge_as_causal, says_causal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.parameters import Parameter
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

HIDES = "it hides keys behind a query by itself"
UNEQUAL = "by default it hides keys behind a query, by a rule of its own where S is unlike L"
CAUSAL = f"{HIDES}, so it was judged as causal attention."
# Of a row's move: e^-9, as a score of -10 in place of -inf leaves a hidden key a bit less. In plain
# problems without a causal rule no key has so little weight.
LEAK = 1e-4


def decoder_switches(convention: Convention, read: Iterable[Parameter]) -> Iterator[Parameter]:
    """Yield the switches called `is_decoder` that change a plain answer, as causal switches.

    Elsewhere one is of a cache alone, or of a part that is not asked.
    """
    for each in (p for p in read if p.name == "is_decoder"):
        problem = make_problem(convention.trial_case())
        with suppress(CandidateError):
            plain = convention.answer_with(problem, {}).output
            switched = convention.answer_with(problem, {each.key: True}).output
            if plain.shape == switched.shape and (plain != switched).any():
                yield replace(each, role=Role.CAUSAL)


def hides_the_future(convention: Convention, problem: Problem) -> bool:
    """Return whether one of the first two rows stays when one of the last two changes.

    It stays where it moves by next to nothing, too: what hides with a small number leaks, and is to
    be judged as what it means to be.

    Two rows, since a rule that hides the diagonal too leaves the first one nothing, which then may
    see everything. The rows between may see too much of the future: that is for the judge. A target
    that forgets its last key hides no future, nor does one whose last row never sees the key before
    it: it may answer with keys of other calls. A causal rule is one of a single head too: where
    several are split wrongly, rows are a jumble, in which none of the last may reach the first.

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
    last = row_moves(before, convention(_changed(problem, -1)).output)
    unchanged = [row for row in (0, 1) if last[row] <= LEAK * last[-1]]
    if not unchanged or not last[-1]:
        return False
    other = row_moves(before, convention(_changed(problem, -2)).output)
    back = bool(other[-1]) and any(other[row] <= LEAK * other[-1] for row in unchanged)
    return back and not _is_band(convention, problem, before)


def _is_band(convention: Convention, problem: Problem, before: Array) -> bool:
    """Return whether the last row sees no first key, and the first row the key behind it.

    So does a window on both sides of a row, which hides no future by itself.
    """
    first = row_moves(before, convention(_changed(problem, 0)).output)
    if first[-1] > LEAK * first.max():
        return False
    second = row_moves(before, convention(_changed(problem, 1)).output)
    return bool(second[0] > LEAK * second.max())


def row_moves(first: Array, second: Array) -> Array:
    """Return by how much each row moves at most: NaN is the same as NaN, and nothing else is."""
    if first.shape != second.shape:
        return np.full(first.shape[1], np.inf)
    whole = absolute_difference(first, second)
    others = tuple(axis for axis in range(whole.ndim) if axis != 1)
    return np.asarray(whole.max(axis=others, initial=0))


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
    if not convention.hides_future:
        convention.remarks = (*convention.remarks, *as_said(convention))
    else:
        convention.offer = convention.offer | {"attn": ("causal",), "inputs": ("self",)}
        convention.reasons["attn", "none"] = HIDES
        convention.remarks = (*convention.remarks, CAUSAL)


def as_said(convention: Convention, config: str = "", *, departs: bool = False) -> tuple[str, ...]:
    """Judge what hides no future, and says that it is causal, as that; return the remark on it."""
    what = says_causal(convention, config, departs=departs)
    if not what:
        return ()
    case = convention.trial_case()
    one = case.replace(inputs="self", keys=case.queries, heads_count=1, kv_heads_count=0)
    hides = False
    with suppress(CandidateError):
        hides = "one" in convention.offer["heads"] and _reaches_back_alone(
            convention, make_problem(one)
        )
    return (judge_as_causal(convention, what, of_one_head=hides),)
