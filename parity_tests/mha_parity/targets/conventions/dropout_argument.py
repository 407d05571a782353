"""Dropout of a function that takes its probability in the call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mha_parity.core.parameters import Role
from mha_parity.targets.parameters import role

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.problem import Problem
    from mha_parity.targets.conventions.base import Convention
    from mha_parity.targets.conventions.calls import Call


def with_dropout_passed(
    convention: Convention, problem: Problem, p: float
) -> Callable[[bool], Call] | None:
    """Return what makes calls with the dropout probability, 0 in evaluation; None without one."""
    named = [
        each.name
        for each in convention.call_parameters
        if role(each.name, "call", each.default) is Role.DROPOUT and isinstance(each.default, float)
    ]
    if len(named) != 1 or p == 1:  # no dropout of a target's own promises what 0 / 0 is
        return None

    def asked(training: bool) -> Call:
        call = convention.prepare(problem)
        return replace(call, kwargs={**call.kwargs, named[0]: p * training})

    return asked
