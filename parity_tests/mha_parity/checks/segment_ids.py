"""Check several sequences in one sample, where a call takes the segment of each row.

It is said by a number for each row, or by the rows at which segments begin, and the last one ends.

Rows see the keys of their own segment alone: each should be what it is where its segment is asked
as a sequence of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.checks.compared_calls import ComparedCall, tell_compared
from mha_parity.checks.plain_problems import plain_sequence
from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import describe_difference, equal_up_to_float32
from mha_parity.targets.caches.cached_calls import rows
from mha_parity.targets.calls.error_origin import refuses
from mha_parity.targets.static.call_parameters import numbers_segments, says_starts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

NAME = "segments"
CHECKS = {NAME: "rows see the keys of their own segment, and no others"}
REMEDY = "hide key j from row i where their segments have different numbers, whichever is larger"
HEAD_DIM = 4
# Where the segments of samples begin, sample by sample; the last one ends with the rows.
STARTS = ((0, 2, 5), (0, 4), (0, 1, 2))
LENGTH = 7


def check_segments(bound: Convention, problem: Problem, number: int) -> Iterator[str]:
    """Yield the finding on a small problem, of the kind of ``problem``, with segments.

    ``number`` is that of the case among those for which this is asked. A call that raises leaves
    the parameter untried.
    """
    named = [each.name for each in bound.call_parameters]
    of_rows = [f"call.{name}" for name in named if numbers_segments(name)]
    of_starts = [f"call.{name}" for name in named if says_starts(name)]
    if not (of_rows or of_starts):
        return
    whole = plain_sequence(bound, problem, LENGTH, HEAD_DIM, causal=bound.hides_future)
    if whole is None:
        return
    starts = [STARTS[(number + n) % len(STARTS)] for n in range(whole.case.batch)]
    ids = np.array([np.searchsorted(each, range(LENGTH), side="right") for each in starts])
    single = whole.case.layout == "unbatched"
    if of_starts and not single:  # which samples they are of would be a guess
        return
    ends = np.array([*starts[0], LENGTH], dtype=np.int32)
    given = dict.fromkeys(of_rows, ids[0] if single else ids) | dict.fromkeys(of_starts, ends)
    try:
        masks = {} if bound.masks is None else bound.masks.passed(whole)
        found = bound.answer_with(whole, {**masks, **given}).output
    except CandidateError as error:
        if not refuses(error):
            yield f"{NAME}: with segments of several rows it {error}."
        return
    yield NAME
    for sample, begun in enumerate(starts):
        for start, stop in zip(begun, (*begun[1:], LENGTH), strict=True):
            own = rows(whole, start, stop)
            expected = bound(own).output[sample]
            if equal_up_to_float32(expected, found[sample, start:stop]):
                continue
            listed = f"rows {start} to {stop - 1}" if stop - start > 1 else f"row {start}"
            said = f"{listed} of sample {sample} as one of {len(begun)} segments"
            tell_compared(
                NAME,
                ComparedCall("the rows of a segment alone", own, expected[None]),
                ComparedCall(said, whole, found[sample : sample + 1]),
            )
            difference = describe_difference(expected, found[sample, start:stop])
            yield f"{NAME}: {difference} from a sequence of their own, asked with {said}."
            return
