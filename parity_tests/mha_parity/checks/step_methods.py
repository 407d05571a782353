"""Check that several rows in one call of a step method are those of the whole sequence.

Prompts are passed so, and single rows behind them. A method that takes one row alone refuses them,
or answers already the first ones otherwise: nothing is said of it then.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import describe_difference, equal_up_to_rounding
from mha_parity.targets.caches.cached_calls import CachedCalls, rows

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.cache_arguments import CacheUse
    from mha_parity.targets.convention_base.convention import Convention

ROWS = 3  # of a call: no divisor of the lengths, so that the last call has fewer


def departing_step(bound: Convention, use: CacheUse, whole: Problem, expected: Array) -> str:
    """Say which rows of one call depart from the whole, ``expected``; "" where none do."""
    calls, length = CachedCalls(bound, use), whole.case.queries
    cache = ()
    with suppress(CandidateError):
        for first in range(0, length, ROWS):
            end = min(first + ROWS, length)
            output, cache = calls.in_one_step(rows(whole, first, end), cache)
            right = expected[:, first:end]
            if equal_up_to_rounding(right, output):
                continue
            if not first or right.shape != output.shape:
                return ""
            difference = describe_difference(right, output)
            asked = f"asked in one `{use.method}` behind those before them"
            return f"{difference} in rows {first} to {end - 1}, {asked}"
    return ""
