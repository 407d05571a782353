"""Check that rows asked with a window are attention to the keys of that window.

What a window means is found by small calls; here it is asked at further sizes and lengths, those
that divide each other, are alike, or cover the whole among them. Each row should be the one that
the target gives to the keys of its window alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.checks.plain_sequence import plain_sequence
from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import describe_difference
from mha_parity.targets.attribution import REFUSES
from mha_parity.targets.conventions.window_calls import WindowedSequence, alike

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.conventions.base import Convention
    from mha_parity.targets.conventions.window_use import WindowUse

NAME = "rows within a window"
CHECKS = {NAME: "rows that are asked with a window are attention to the keys of that window"}
REMEDY = (
    "let each row see the keys of its window alone: look at its bounds where a block or a tile "
    "begins, and at the ends of the sequence"
)
HEAD_DIM = 3
# Lengths, and sizes of the window on either side.
SIZES = (
    (9, 4, 2), (13, 2, 5), (20, 8, 8), (6, 1, 2), (34, 16, 3), (11, 11, 10), (66, 32, 16),
    (12, 15, 13), (17, 3, 1), (130, 64, 65), (70, 33, 7), (8, 7, 9), (96, 64, 64), (1, 2, 3),
    (65, 5, 8), (40, 20, 20), (129, 128, 31),
)  # fmt: skip
SELDOM = 4  # where each length is compiled, one of 4 is asked


def check_windows(bound: Convention, problem: Problem, number: int) -> Iterator[str]:
    """Yield the findings on small problems with a window, of the kind of ``problem``.

    ``number`` is that of the case among those for which this is asked. An object that is given as
    it is keeps the window that it was built with.
    """
    if bound.facts.compiles and number % SELDOM != 1:
        return
    length, left, right = SIZES[(number - 1) % len(SIZES)]
    for use in bound.windows:
        if use.is_built and bound.own_weights is not None and bound.own_weights.built:
            continue
        asked = -(-length // left) * left if use.whole else length
        for causal in use.causal:
            whole = plain_sequence(bound, problem, asked, HEAD_DIM, causal=causal)
            if whole is not None:
                yield NAME
                sequence = WindowedSequence(bound, whole)
                yield from _departures(sequence, use, (left, right) if use.pair else left)


def _departures(
    sequence: WindowedSequence, use: WindowUse, size: int | tuple[int, int]
) -> Iterator[str]:
    """Yield the first row that is not attention to the keys of its window, or that a call raised.

    A window that is refused on purpose is none of the target's.
    """
    rule = " and the causal rule" if sequence.problem.is_causal else ""
    said = f"with `{use.name}` = {size}{rule} at L = {sequence.length}"
    try:
        output = sequence.answer(use, size)
    except CandidateError as error:
        if not isinstance(error.__context__, REFUSES):
            yield f"{NAME}: {said} it {error}."
        return
    row = sequence.departs(use, size, output, _rows(sequence.length, size))
    if row is None:
        return
    first, end = sequence.keys_of(use, row, size)
    expected = sequence.row(row, first, end)
    found = output[:, row]
    yield (
        f"{NAME}: {said} {describe_difference(expected, found)} in row {row}, which should see "
        f"{_keys(first, end)}{_seen(sequence, row, (first, end), found)}."
    )


def _rows(length: int, size: int | tuple[int, int]) -> list[int]:
    """Return the rows to compare, the first and last ones, and those at the window's borders.

    Each takes a call of its own.
    """
    left = size if isinstance(size, int) else size[0]
    middle, last = length // 2, length - 1
    wanted = {0, left - 1, left, left + 1, middle, 64, last - left, last - 1, last}
    return sorted(row for row in wanted if 0 <= row < length)


def _seen(sequence: WindowedSequence, row: int, expected: tuple[int, int], found: Array) -> str:
    """Say which consecutive keys a row has seen; "" where it is not off at one end alone."""
    first, end = expected
    ends = range(row + 1, end if sequence.problem.is_causal else sequence.length + 1)
    seen = [(other, end) for other in range(row + 1)] + [(first, other) for other in ends]
    for each in sorted(seen, key=lambda keys: abs(keys[0] - first) + abs(keys[1] - end)):
        if alike(sequence.row(row, *each), found):
            return f", and sees {_keys(*each)}"
    return ""


def _keys(first: int, end: int) -> str:
    return f"key {first}" if end == first + 1 else f"keys {first} to {end - 1}"
