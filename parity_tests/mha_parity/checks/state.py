"""Check that an object answers alike before and after it is called with other sizes."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import describe_difference, equal_up_to_rounding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem
    from mha_parity.targets.conventions.base import Call, Convention

LEAST = 2  # queries and keys, of which half can be left out


def other_sizes(bound: Convention, problem: Problem, call: Call, kept: Answer) -> Iterator[str]:
    """Yield the difference that calls with other sizes make to the answers of one object.

    A problem of half the length is computed by a new object and by that of ``call``, and then the
    first problem again by that of ``call``. An object that takes one length alone is not checked.
    """
    if min(problem.case.queries, problem.case.keys) < LEAST:
        return
    half = shortened(problem)
    with contextlib.suppress(CandidateError):
        expected = _output(bound, half, bound.prepare(half))
        actual = _output(
            bound, half, dataclasses.replace(bound.prepare(half), function=call.function)
        )
        if not equal_up_to_rounding(expected, actual):
            difference = describe_difference(expected, actual)
            yield (
                f"statelessness: {difference} between a new object and one that answered "
                f"{problem.case.queries} queries and {problem.case.keys} keys before."
            )
            return
        again = _output(bound, problem, call)
        if not equal_up_to_rounding(kept.output, again):
            difference = describe_difference(kept.output, again)
            yield (
                f"statelessness: {difference} in the answer of the same object after a problem "
                f"of {half.case.queries} queries and {half.case.keys} keys."
            )


def shortened(problem: Problem) -> Problem:
    """Return the problem with the first half of its queries and keys."""
    queries, keys = problem.case.queries // 2, problem.case.keys // 2
    changes: dict[str, object] = {}
    cut: dict[int, Array] = {}
    for name, length in (("query", queries), ("key", keys), ("value", keys)):
        array = getattr(problem, name)
        changes[name] = cut.setdefault(id(array), array[:, :length].copy())
    if problem.key_padding_mask is not None:
        changes["key_padding_mask"] = problem.key_padding_mask[:, :keys].copy()
    if problem.attn_mask is not None:
        changes["attn_mask"] = problem.attn_mask[..., :queries, :keys].copy()
    return problem.replace(case=problem.case.replace(queries=queries, keys=keys), **changes)


def _output(bound: Convention, problem: Problem, call: Call) -> Array:
    return bound.answer(problem, call.make()).output
