"""Check that padding in front of a sequence hides nothing else under the causal rule.

Batches whose sequences end together are padded on the left. Under the causal rule the first row
sees the first key alone, so that the cases of a run leave it visible. Here the first keys of one
sample are hidden. Its rows before the first real key see none: where documentation promises 0 of
such rows they are 0 before the output projection, and may be anything elsewhere. Each row behind
should be that of the sequence without its padding.
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
from mha_parity.targets.static.documented_masked_rows import documents_zero_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

NAME = "padding in front"
CHECKS = {NAME: "padding in front of a sequence hides nothing else under the causal rule"}
REMEDY = (
    "hide from each row the keys that padding hides and those behind it, both at once; treat as a "
    "row without keys only one whose keys are all hidden, not one whose first key is"
)
NO_KEY = "which sees no key, is not that of an attention of 0, which its documentation promises"
HEAD_DIM = 4
SIZES = ((6, 2), (13, 5), (34, 1), (70, 64), (20, 19), (40, 16))  # rows, and those of padding
HIDING = ("bool", "float")  # lengths hide no first key
SELDOM = 4  # where each length is compiled, one of 4 is asked


def check_left_padding(bound: Convention, problem: Problem, number: int) -> Iterator[str]:
    """Yield the finding on a small problem, of the kind of ``problem``, that begins with padding.

    ``number`` is that of the case among those for which this is asked. A target that refuses such
    a problem on purpose is not asked further.
    """
    kind = next((each for each in HIDING if each in bound.offer["padding"]), "")
    if not kind or "causal" not in bound.offer["attn"]:
        return
    if bound.facts.compiles and number % SELDOM != 1:
        return
    length, padded = SIZES[(number - 1) % len(SIZES)]
    whole = plain_sequence(bound, problem, length, HEAD_DIM, causal=True, padding=kind)
    if whole is None:
        return
    # A sequence of that length that raises without padding is no finding on padding.
    plain = whole.replace(case=whole.case.replace(padding="none"), key_padding_mask=None)
    behind = rows(plain, padded, length)
    expected = bound(behind).output
    bound(plain)
    yield NAME
    said = f"with the first {padded} of {length} keys of sample 0 hidden"
    asked = _hiding(whole, padded)
    try:
        found = bound(asked).output
    except CandidateError as error:
        if not refuses(error):
            yield f"{NAME}: {said} it {error}."
        return
    if (row := _first_row_of_something(bound, whole, found, padded)) is not None:
        tell_compared(NAME, ComparedCall(said, asked, found[:1]))
        yield f"{NAME}: {said} row {row}, {NO_KEY}."
        return
    for row in range(padded, length):
        if not equal_up_to_float32(expected[0, row - padded], found[0, row]):
            difference = describe_difference(expected[0, row - padded], found[0, row])
            seen = f"see keys {padded} to {row}" if row > padded else f"see key {row} alone"
            tell_compared(
                NAME,
                ComparedCall(f"rows {padded} to {length - 1} alone", behind, expected[:1]),
                ComparedCall(said, asked, found[:1]),
            )
            yield f"{NAME}: {said} {difference} in row {row}, which should {seen}."
            return


def _hiding(whole: Problem, padded: int) -> Problem:
    """Return a problem with the first keys of its first sample hidden."""
    hidden = np.zeros((whole.case.batch, whole.case.keys), dtype=bool)
    hidden[0, :padded] = True
    floats = whole.case.padding == "float"
    mask = np.where(hidden, -np.inf, 0).astype(whole.dtype) if floats else hidden
    return whole.replace(key_padding_mask=mask)


def _first_row_of_something(
    bound: Convention, whole: Problem, found: Array, padded: int
) -> int | None:
    """Return the first row without keys that is not 0, where that is promised; None if none is.

    And where it is so in a sample without any key: what that has otherwise, other checks are about.
    """
    if not documents_zero_rows(bound.subject):
        return None
    empty = np.zeros(whole.output_shape[-1]) if whole.b_out is None else whole.b_out
    empty = empty.astype(found.dtype)
    try:
        without = bound(_hiding(whole, whole.case.keys)).output[0]
    except CandidateError:
        return None
    if not all(equal_up_to_float32(empty, row) for row in without):
        return None
    return next(
        (row for row in range(padded) if not equal_up_to_float32(empty, found[0, row])), None
    )
