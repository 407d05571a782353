"""Check the causal rule for fewer queries than keys, down to a single one.

Torch counts both from the first row: of one query the rule leaves the first key alone. Code that
drops the rule for a single query means a cache, and few cases have one query of several keys. The
rows of a call of as many queries as keys say what those of fewer are: of a rule that counts from
the last of each, which cases cannot ask there, those of the last queries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.checks.compared_calls import ComparedCall, tell_compared
from mha_parity.checks.plain_problems import plain_cross_attention, plain_sequence
from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import describe_difference, equal_up_to_float32
from mha_parity.core.features import UNLIKE_LENGTHS
from mha_parity.core.target_facts import takes_one_length
from mha_parity.targets.convention_base.always_causal import UNEQUAL
from mha_parity.targets.static.documented_causal_alignment import documents_last_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

NAME = "causal rule of few queries"
CHECKS = {NAME: "under the causal rule few queries see the keys that they see among more"}
REMEDY = (
    "count queries and keys from the first of each, whatever their numbers: where one query is the "
    "last of a cache, let its caller say so"
)
OF_LAST = "from the last rows among"
COUNT_FROM_LAST = (
    "align queries and keys at their ends: of L queries and S keys query i sees the keys "
    "j <= i + S - L"
)
KEYS, HEAD_DIM = 7, 4
SELDOM = 4  # where each length is compiled, one of 4 is asked
SEVERAL = 3  # queries, of which rules that count from the last differ as well


def check_causal_lengths(bound: Convention, problem: Problem, number: int) -> Iterator[str]:
    """Yield the finding on a small problem with the causal rule, of the kind of ``problem``.

    Not where several queries are counted from the last: then other cases say so. ``number`` is that
    of the case among those for which this is asked.
    """
    inside = _documents_its_own(bound)
    if "causal" not in bound.offer["attn"] or (
        takes_one_length(bound.facts.reasons) and not inside
    ):
        return
    if bound.facts.compiles and number % SELDOM != 1:
        return
    keys = KEYS + 2 * (number % 3)
    if inside:
        whole = plain_sequence(bound, problem, keys, HEAD_DIM, causal=True)
    else:
        whole = plain_cross_attention(bound, problem, keys, keys, HEAD_DIM, attn="causal")
    if whole is None:
        return
    of_last = inside or (bound.masks is not None and bound.masks.counts_from_last)
    try:
        expected = bound(whole).output
        if not of_last:
            several = bound(first_queries(whole, SEVERAL)).output
            if not equal_up_to_float32(expected[:, :SEVERAL], several):
                return
        # The last query alone sees all keys, whether the rule is on or off.
        for count in (2, keys - 1) if of_last else (1, 2, keys - 1):
            few = _few(whole, count, of_last=of_last, inside=inside)
            rows = expected[:, -count:] if of_last else expected[:, :count]
            found = bound(few).output
            yield NAME
            if not equal_up_to_float32(rows, found):
                tell_compared(
                    NAME,
                    ComparedCall(f"{keys} queries with the causal rule", whole, expected),
                    ComparedCall(f"the {'last' if of_last else 'first'} of them", few, found),
                )
                said = f"{count} quer{'y' if count == 1 else 'ies'} of {keys} keys"
                among = OF_LAST if of_last else "from the same rows among"
                yield f"{NAME}: {said}: {describe_difference(rows, found)} {among} {keys} queries."
                return
    except CandidateError:  # what raises is the finding of other cases
        return


def _documents_its_own(bound: Convention) -> bool:
    """Return whether a rule that the target has by itself is documented to count from the last.

    Its cases have as many keys as queries, and cannot show that.
    """
    reasons = bound.facts.reasons
    said = {reasons.get(UNLIKE_LENGTHS), reasons.get(("inputs", "cross"))}
    return bound.hides_future and UNEQUAL in said and documents_last_keys(bound.subject) is True


def _few(whole: Problem, count: int, *, of_last: bool, inside: bool) -> Problem:
    """Return the problem with fewer queries; a rule ``inside`` the target needs no mask."""
    if inside:
        case = whole.case.replace(queries=count, inputs="cross")  # with the keys as they are
        return whole.replace(case=case, query=whole.query[:, -count:].copy())
    return last_queries(whole, count) if of_last else first_queries(whole, count)


def last_queries(problem: Problem, count: int) -> Problem:
    """Return the problem with as many of the last queries, which see the keys up to their own."""
    case = problem.case.replace(queries=count, attn="bool2d")
    keys = case.keys
    behind = np.triu(np.ones((count, keys), dtype=bool), k=1 + keys - count)
    return problem.replace(case=case, query=problem.query[:, -count:].copy(), attn_mask=behind)


def first_queries(problem: Problem, count: int) -> Problem:
    """Return the problem with as many of the first queries."""
    case = problem.case.replace(queries=count)
    return problem.replace(case=case, query=problem.query[:, :count].copy())
