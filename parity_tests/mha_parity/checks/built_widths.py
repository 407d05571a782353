"""Answers of a layer that is built with another width than its queries have."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mha_parity.checks.compared_calls import ComparedCall, tell_compared
from mha_parity.core.candidate import REMARK, CandidateError
from mha_parity.core.compare import describe_difference, equal_up_to_float32
from mha_parity.targets.calls.error_origin import refuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.interpreted_layers import InterpretedLayers


class OtherWidth(NamedTuple):
    """A width that a layer is built with: of which attribute of a convention, and of what.

    ``names`` are the parameters of the constructor that get it.
    """

    attribute: str
    names: tuple[str, ...]
    size: int
    what: str


def width_findings(
    bound: InterpretedLayers,
    width: OtherWidth,
    asked: Problem,
    equal: tuple[Problem, Array],
    check: str,
    of: str,
) -> Iterator[str]:
    """Yield the finding of a check on a problem that a layer of another width is asked.

    ``equal`` is the problem of one width that has the same answer, and that answer; ``of`` says
    which width the queries have. A width that raises was not tried, and is a remark
    unless it is refused.
    """
    said = f"with `{width.names[0]}` = {width.size} and {of}"
    passed = bound.passed
    setattr(bound, width.attribute, dict.fromkeys(width.names, width.size))
    try:
        found = bound(asked).output
    except CandidateError as error:
        bound.passed = passed
        if not refuses(error):
            yield f"{REMARK}{said} it {error}: {width.what} of another width are not served."
        return
    finally:
        setattr(bound, width.attribute, {})
    # What was passed as always is no trial of what it is for.
    own = {f"constructor.{name}" for name in width.names}
    bound.passed = passed | {key: value for key, value in bound.passed.items() if key in own}
    yield check
    problem, expected = equal
    if not equal_up_to_float32(expected, found):
        tell_compared(
            check,
            ComparedCall("one width for both, with zeros in the weights", problem, expected),
            ComparedCall(said, asked, found),
        )
        yield f"{check}: {said} {describe_difference(expected, found)}."


def without_channels(problem: Problem, parts: frozenset[str], width: int) -> Problem:
    """Return a problem in which projections' channels from ``width`` on are zero, head by head.

    Of values that are zero the columns of the output's projection do not count.
    """
    changed = {}
    for part in parts - {"out"}:
        for name in (f"w_{part}", f"b_{part}"):
            array = getattr(problem, name)
            if array is not None:
                split = np.array(array).reshape(problem.num_heads, -1, *array.shape[1:])
                split[:, width:] = 0
                changed[name] = split.reshape(array.shape)
    return problem.replace(**changed)
