"""Check the causal rule for fewer queries than keys, down to a single one.

Torch counts both from the first row: of one query the rule leaves the first key alone. Code that
drops the rule for a single query means a cache, and few cases have one query of several keys. The
rows of a call of as many queries as keys say what those of fewer are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.checks.compared_calls import ComparedCall, tell_compared
from mha_parity.checks.plain_sequence import plain_cross_attention
from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import describe_difference
from mha_parity.core.target_facts import takes_one_length
from mha_parity.targets.conventions.window_calls import alike

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.problem import Problem
    from mha_parity.targets.conventions.base import Convention

NAME = "causal rule of few queries"
CHECKS = {NAME: "under the causal rule few queries see the keys that they see among more"}
REMEDY = (
    "count queries and keys from the first of each, whatever their numbers: where one query is the "
    "last of a cache, let its caller say so"
)
KEYS, HEAD_DIM = 7, 4
SELDOM = 4  # where each length is compiled, one of 4 is asked
SEVERAL = 3  # queries, of which rules that count from the last differ as well


def check_causal_lengths(bound: Convention, problem: Problem, number: int) -> Iterator[str]:
    """Yield the finding on a small problem with the causal rule, of the kind of ``problem``.

    Not where several queries are counted from the last: then other cases say so. ``number`` is that
    of the case among those for which this is asked.
    """
    one_length = takes_one_length(bound.facts.reasons)
    if "causal" not in bound.offer["attn"] or one_length:
        return
    if bound.facts.compiles and number % SELDOM != 1:
        return
    keys = KEYS + 2 * (number % 3)
    whole = plain_cross_attention(bound, problem, keys, keys, HEAD_DIM, attn="causal")
    if whole is None:
        return
    try:
        expected = bound(whole).output
        several = bound(first_queries(whole, SEVERAL)).output
        if not alike(expected[:, :SEVERAL], several):
            return
        for count in (1, 2, keys - 1):
            few = first_queries(whole, count)
            found = bound(few).output
            yield NAME
            if not alike(expected[:, :count], found):
                tell_compared(
                    NAME,
                    ComparedCall(f"{keys} queries with the causal rule", whole, expected),
                    ComparedCall("the first of them", few, found),
                )
                said = f"{count} quer{'y' if count == 1 else 'ies'} of {keys} keys"
                difference = describe_difference(expected[:, :count], found)
                yield f"{NAME}: {said}: {difference} from the same rows among {keys} queries."
                return
    except CandidateError:  # what raises is the finding of other cases
        return


def first_queries(problem: Problem, count: int) -> Problem:
    """Return the problem with as many of the first queries."""
    case = problem.case.replace(queries=count)
    return problem.replace(case=case, query=problem.query[:, :count].copy())
