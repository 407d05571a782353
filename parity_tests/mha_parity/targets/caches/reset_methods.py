"""Methods by which a layer forgets what earlier calls left, where its callers have to call one.

A layer that decodes may keep keys and values in itself, until `reset()` say is called. Small calls
show it: two equal ones differ, and are equal where the method is called before each.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import equal_up_to_rounding
from mha_parity.targets.convention_base.interpreted import InterpretedCalls
from mha_parity.targets.static.defined_methods import own_methods

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

_RESET = re.compile(
    r"(reset|clear|forget|empty)(_(kv_?)?(cache|state|memory|mem|buffer|history)s?)?"
)
REMARK = "`{}()` is called before each call: the layer keeps what earlier ones left until then."


def find_reset(bound: Convention) -> None:
    """Let a layer's calls begin with the method that makes equal calls equal, and say so."""
    if not isinstance(bound, InterpretedCalls) or bound.how.construction is None:
        return
    names = list(forgetting_methods(bound.subject)) if isinstance(bound.subject, type) else []
    if not names:
        return
    problem = make_problem(bound.trial_case())
    with suppress(CandidateError):
        first, again = _twice(bound, problem)
        if equal_up_to_rounding(first, again):
            return
        for name in names:
            bound.reset = name
            if all(equal_up_to_rounding(first, each) for each in _twice(bound, problem)):
                bound.remarks = (*bound.remarks, REMARK.format(name))
                return
    bound.reset = ""


def forgetting_methods(kind: type) -> Iterator[str]:
    """Yield the methods of a class that forget by their names, and need no argument."""
    for name, required in own_methods(kind):
        if _RESET.fullmatch(name) and not required:
            yield name


def _twice(bound: Convention, problem: Problem) -> tuple[Array, Array]:
    """Return the outputs of two equal calls of one object."""
    call = bound.prepare(problem)
    first, second = (bound.answer(problem, call.make()).output.copy() for _ in range(2))
    return first, second
