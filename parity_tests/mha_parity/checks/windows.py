"""Check that rows asked with a window are attention to the keys of that window.

What a window means is found by small calls; here it is asked at further sizes and lengths, those
that divide each other, are alike, or cover the whole among them; beside a mask, with scores that no
small negative number hides, and with the cache of the rows before. Each row should be the one that
the target gives to the keys of its window alone.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.checks.compared_calls import ComparedCall, tell_compared
from mha_parity.checks.plain_problems import plain_sequence
from mha_parity.checks.step_methods import departing_step
from mha_parity.core.candidate import REMARK, CandidateError
from mha_parity.core.compare import describe_difference, equal_up_to_float32
from mha_parity.core.problem import INPUTS
from mha_parity.targets.caches.cached_calls import CachedCalls, rows
from mha_parity.targets.calls.error_origin import refuses
from mha_parity.targets.features_offered.window_calls import WindowedSequence, in_window
from mha_parity.targets.static.documented_window import contradicted
from mha_parity.targets.static.window_arguments import BLOCKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention
    from mha_parity.targets.static.window_arguments import WindowUse

NAME = "rows within a window"
CHECKS = {NAME: "rows that are asked with a window are attention to the keys of that window"}
REMEDY = (
    "let each row see the keys of its window alone: look at its bounds where a block or a tile "
    "begins, and at the ends of the sequence"
)
HEAD_DIM = 4
# Lengths, and sizes of the window on either side.
SIZES = (
    (9, 4, 2), (13, 2, 5), (20, 8, 8), (6, 1, 2), (34, 16, 3), (11, 11, 10), (66, 32, 16),
    (12, 15, 13), (17, 3, 1), (130, 64, 65), (70, 33, 7), (260, 33, 128), (8, 7, 9), (96, 64, 64),
    (514, 256, 64), (129, 128, 31), (40, 20, 20), (1, 2, 3), (65, 5, 8),
)  # fmt: skip
MASKS = (("padding", ("bool", "lengths", "float")), ("attn", ("bool2d", "float2d")))
SHIFT = 8.0  # of inputs: of float32 their scores would have too few digits
CACHED = 20  # rows at most that are asked one by one
BEGIN = 2  # rows whose cache is passed on
OUTSIDE = "Beside a mask `{}` is left out: what is passed has to hide what lies outside of it too."
KEPT = "what a call makes for its window is kept for another one"
FORGET = "make in each call what depends on its window, or keep it under that window"
NO_MASK = ", as if no mask were passed"
SELDOM = 4  # where each length is compiled, one of 4 is asked


def check_windows(bound: Convention, problem: Problem, number: int) -> Iterator[str]:
    """Yield the findings on small problems with a window, of the kind of ``problem``.

    ``number`` is that of the case among those for which this is asked. An object that is given as
    it is keeps the window that it was built with.
    """
    if bound.facts.compiles and number % SELDOM != 1:
        return
    length, *sides = SIZES[(number - 1) % len(SIZES)]
    for use in bound.windows:
        if use.is_built and bound.own_weights is not None and bound.own_weights.built:
            continue
        if said := contradicted(use, bound.subject):
            yield f"{NAME}: by its documentation {said}; by its answers, {use.meaning}."
        left, right = (side | use.odd for side in sides)
        asked = -(-length // left) * left if use.whole else length
        for causal in use.causal:
            for masks in _masks(bound, number, causal=causal):
                whole = plain_sequence(bound, problem, asked, HEAD_DIM, causal=causal, **masks)
                if whole is not None:
                    yield NAME
                    shifted = number % 3 == 2 and whole.case.dtype == "float64"
                    sequence = WindowedSequence(bound, _shifted(bound, whole) if shifted else whole)
                    yield from _findings(sequence, use, (left, right) if use.pair else left)


def _masks(bound: Convention, number: int, *, causal: bool) -> Iterator[dict[str, str]]:
    """Yield no mask, then in every other case one that is offered, as values of an axis."""
    yield {}
    axis, values = MASKS[number // 2 % 2]
    offered = [each for each in values if each in bound.offer[axis]]
    if number % 2 and offered and not (causal and axis == "attn"):
        yield {axis: offered[0]}


def _shifted(bound: Convention, problem: Problem) -> Problem:
    """Return a problem whose scores are far from 0: no fill of -30 hides keys of negative ones.

    Query and key are opposite where they may differ; else the weights decide on the sign.
    """
    inputs = problem.query + np.asarray(SHIFT, problem.query.dtype)
    changed = problem.replace(**dict.fromkeys(INPUTS, inputs))
    if "cross" not in bound.offer["inputs"]:
        return changed
    keys = -inputs
    return changed.replace(case=problem.case.replace(inputs="cross"), key=keys, value=keys)


def _findings(
    sequence: WindowedSequence, use: WindowUse, size: int | tuple[int, int]
) -> Iterator[str]:
    """Yield the first row that is not attention to the keys of its window, or that a call raised.

    A window that is refused on purpose is none of the target's.
    """
    case = sequence.problem.case
    rule = " and the causal rule" * (case.attn == "causal")
    mask = " and a mask" * sequence.has_mask
    said = f"with `{use.name}` = {size}{rule}{mask} at L = {sequence.length}"
    try:
        output = sequence.answer(use, size)
    except CandidateError as error:
        if not refuses(error):
            yield f"{NAME}: {said} it {error}."
        return
    row = sequence.departs(use, size, output, _rows(sequence.length, size))
    if row is None:
        yield from _cached_findings(sequence, use, size, said)
        yield from _after_others(sequence, use, size, output)
        return
    first, end = sequence.keys_of(use, row, size)
    expected, found = sequence.row(row, first, end), output[:, row]
    if sequence.has_mask and equal_up_to_float32(sequence.row(row, 0, sequence.length), found):
        yield REMARK + OUTSIDE.format(use.name)
        return
    keys = _keys(first, end)
    tell_compared(
        NAME,
        ComparedCall(f"{said}, of which row {row}", sequence.problem, found),
        ComparedCall(f"row {row} of {keys} alone, without a window", sequence.problem, expected),
    )
    yield (
        f"{NAME}: {said} {describe_difference(expected, found)} in row {row}, which should see "
        f"{keys}{_seen(sequence, row, (first, end), found)}."
    )


def _after_others(
    sequence: WindowedSequence, use: WindowUse, size: int | tuple[int, int], output: Array
) -> Iterator[str]:
    """Yield that an object answers otherwise that was asked with another window before.

    ``output`` is that of a new object. One that is built with its window has no other.
    """
    if use.is_built or sequence.has_mask:
        return
    longer = (size[0] + 2, size[1] + 2) if isinstance(size, tuple) else size + 2
    for other in (None, sequence.length if use.whole else longer):
        with suppress(CandidateError):
            found = sequence.answer_after(use, other, size)
            if not equal_up_to_float32(output, found):
                before = "one without" if other is None else f"one with {other}"
                difference = describe_difference(output, found)
                yield (
                    f"{NAME}: with `{use.name}` = {size} after a call of the same object, {before}"
                    f", {difference}: {KEPT}."
                )
                return


def _cached_findings(
    sequence: WindowedSequence, use: WindowUse, size: int | tuple[int, int], said: str
) -> Iterator[str]:
    """Yield the first row that departs where rows are asked one by one, with a cache.

    One that departs without a window too is a finding of another check.
    """
    bound, length = sequence.bound, min(sequence.length, CACHED)
    alone = sequence.has_mask or sequence.problem.is_causal != bound.hides_future
    if bound.cache is None or alone or use.whole or use.rule[0] == BLOCKS:
        return
    try:
        with in_window(bound, use, size):
            answers = _row_by_row(sequence, length)
        plain = _row_by_row(sequence, length)
    except CandidateError:
        return
    for row, found in answers.items():
        first, _ = sequence.keys_of(use, row, size)
        expected = sequence.row(row, first, row + 1)
        if not equal_up_to_float32(sequence.row(row, 0, row + 1), plain[row]):
            return
        if not equal_up_to_float32(expected, found):
            yield (
                f"{NAME}: {said} {describe_difference(expected, found)} in row {row}, asked with "
                f"the cache of those before it, which should see {_keys(first, row + 1)}"
                f"{_seen(sequence, row, (first, row + 1), found)}."
            )
            return
    if bound.cache.method:
        with suppress(CandidateError), in_window(bound, use, size):
            whole = rows(sequence.problem, 0, length)
            if departs := departing_step(bound, bound.cache, whole, bound(whole).output):
                yield f"{NAME}: {said} {departs}."


def _row_by_row(sequence: WindowedSequence, length: int) -> dict[int, Array]:
    """Return the answers to rows that are asked one by one, each with the cache of those before."""
    bound = sequence.bound
    if bound.cache is None:
        return {}
    calls = CachedCalls(bound, bound.cache)
    cache = calls.begin(rows(sequence.problem, 0, BEGIN))[1]
    answers = {}
    for row in range(BEGIN, length):
        answer, cache = calls.go_on(rows(sequence.problem, row, row + 1), row, cache)
        answers[row] = answer.output[:, 0]
    return answers


def _rows(length: int, size: int | tuple[int, int]) -> list[int]:
    """Return the rows to compare, the first and last ones, and those at the window's borders.

    Each takes a call of its own.
    """
    left = size if isinstance(size, int) else size[0]
    middle, last = length // 2, length - 1
    wanted = {0, left - 1, left, left + 1, middle, 64, last - left, last - 1, last}
    return sorted(row for row in wanted if 0 <= row < length)


def _seen(sequence: WindowedSequence, row: int, expected: tuple[int, int], found: Array) -> str:
    """Say which consecutive keys a row has seen; "" where it is not off at one end alone.

    A target may raise where a mask hides all of the keys that are tried.
    """
    with suppress(CandidateError):
        return _seen_keys(sequence, row, expected, found)
    return ""


def _seen_keys(
    sequence: WindowedSequence, row: int, expected: tuple[int, int], found: Array
) -> str:
    first, end = expected
    ends = range(row + 1, end if sequence.problem.is_causal else sequence.length + 1)
    seen = [(other, end) for other in range(row + 1)] + [(first, other) for other in ends]
    for each in sorted(seen, key=lambda keys: abs(keys[0] - first) + abs(keys[1] - end)):
        if equal_up_to_float32(sequence.row(row, *each), found):
            return f", and sees {_keys(*each)}"
    if sequence.has_mask and equal_up_to_float32(
        sequence.without_mask().row(row, *expected), found
    ):
        return NO_MASK
    return ""


def _keys(first: int, end: int) -> str:
    return f"key {first}" if end == first + 1 else f"keys {first} to {end - 1}"
