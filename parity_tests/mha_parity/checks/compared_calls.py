"""The calls that a finding compares, as text for whoever replays the case.

A check that compares calls of its own tells them where it finds something. A run ignores them.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mha_parity.core.array_text import dtype_and_shape, given_arrays, summed_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem

    Tell = Callable[[str, str], None]

FEW = 64  # the most numbers of an array that are printed
_tell: ContextVar[Tell | None] = ContextVar("tell", default=None)


class ComparedCall(NamedTuple):
    """A call in words, its problem, and its output, or the rows of that which are compared."""

    said: str
    problem: Problem
    output: Array | None = None


@contextmanager
def compared_calls_reported(tell: Tell | None) -> Iterator[None]:
    """Have ``tell`` called with a check and the calls that a finding of it compares, as text."""
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)


def tell_compared(check: str, *calls: ComparedCall) -> None:
    """Tell the calls that a finding of a check compares to a replay; a run ignores them."""
    tell = _tell.get()
    if tell is not None:
        tell(check, "\n".join(_lines(calls)))


def _lines(calls: Sequence[ComparedCall]) -> Iterator[str]:
    """Yield each call with the arrays that are others than in the call before."""
    latest: dict[str, Array] = {}
    for number, call in enumerate(calls, start=1):
        yield f"{number}. {call.said}"
        given = list(given_arrays(call.problem))
        for name, array, same in given:
            if not same and not _same(array, latest.get(name)):
                names = [name, *(other for other, _, first in given if first == name)]
                yield from _array_lines(", ".join(names), array)
        if call.problem.is_causal:
            yield "   is_causal  True"
        latest = {name: array for name, array, _ in given}
        if call.output is not None:
            yield from _array_lines("output", call.output)


def _same(first: Array, second: Array | None) -> bool:
    """Return whether two arrays are equal to the bit."""
    if second is None or (first.dtype, first.shape) != (second.dtype, second.shape):
        return False
    return first.tobytes() == second.tobytes()


def _array_lines(name: str, array: Array) -> Iterator[str]:
    """Yield an array; a small mask of booleans as 0 and 1."""
    is_mask = array.dtype == np.bool_ and array.size <= FEW
    first, *more = summed_up(array.astype(np.uint8) if is_mask else array, FEW).split("\n")
    said = f"   {name}  {dtype_and_shape(array)}{', 1 hides' if is_mask else ''}"
    yield said if more else f"{said}  {first}"
    yield from (f"     {line}" for line in ([first, *more] if more else ()))
